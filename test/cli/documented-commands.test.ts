import { execFile } from 'node:child_process';
import { chmodSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { toJobOptions } from '../../src/cli/job-options.js';
import { createProgram, type Invocation } from '../../src/cli/program.js';
import { Oomtune, PROGRAM, PYTHON, ROOT } from './oomtune.js';

const run = promisify(execFile);
const oomtune = new Oomtune();
const work = join(oomtune.home, 'work');

/** The shell's part of a page: its fenced blocks without a language, or marked as a shell's, without prompts and output. */
function blocks(page: string): string[] {
  const text = readFileSync(join(ROOT, page), 'utf8').replace(/<!-- picture -->[\s\S]*<!-- \/picture -->/, '');
  const all = [...text.matchAll(/^```(\w*)\n([\s\S]*?)^```$/gm)];
  return all.filter(([, language = '']) => ['', 'bash', 'sh'].includes(language)).map(([, , block = '']) => block);
}

const pages = [
  'README.md',
  ...['docs/guides', 'docs/reference'].flatMap((folder) =>
    readdirSync(join(ROOT, folder)).map((file) => `${folder}/${file}`),
  ),
].filter((page) => page.endsWith('.md') && !page.endsWith('cli.md'));

/** Every call of oomtune in the blocks: the words of the line up to the next command. */
function calls(page: string): string[][] {
  const lines = blocks(page).flatMap((block) => block.replaceAll('\\\n', ' ').split('\n'));
  return lines.flatMap((line) =>
    line
      .replace(/\s#.*$/, '')
      .split(/\||&&|;|\$\(/)
      .map((part) => /^(?:\$ )?(?:\w+=\S* )*(?:srun |npx )?oomtune\s+(.*?)\)?"?$/.exec(part.trim())?.[1])
      .filter((words) => words !== undefined && !words.includes('…'))
      .map((words) =>
        [...(words as string).matchAll(/'([^']*)'|"([^"]*)"|(\S+)/g)].map(
          (word) => word[1] ?? word[2] ?? (word[3] as string),
        ),
      ),
  );
}

describe('documented commands', () => {
  it('are there to be read', () => {
    expect(pages.flatMap(calls).length).toBeGreaterThan(25);
  });

  it.each(pages.flatMap((page) => calls(page).map((words) => [page, words.join(' '), words] as const)))(
    '%s: oomtune %s',
    async (_page, _line, words) => {
      const dashes = words.indexOf('--');
      const command = dashes < 0 ? [] : words.slice(dashes + 1);
      let called: Invocation | null = null;
      const program = createProgram(async (invocation) => {
        called = invocation;
      }, command);
      await program.parseAsync(dashes < 0 ? words : words.slice(0, dashes), { from: 'user' });
      const { verb, options } = called as unknown as Invocation;
      if (['find-batch', 'run', 'submit'].includes(verb)) {
        const { report: _report, cwd: _cwd, envFile: _envFile, ...rest } = options;
        toJobOptions(rest, command);
      }
    },
  );
});

describe('guides work as written', () => {
  beforeAll(async () => {
    mkdirSync(join(work, 'bin'), { recursive: true });
    const program = (name: string, line: string) => {
      writeFileSync(join(work, 'bin', name), `#!/bin/sh\n${line}\n`);
      chmodSync(join(work, 'bin', name), 0o755);
    };
    program('oomtune', `exec '${PROGRAM}' "$@"`);
    program('python', `exec '${PYTHON}' "$@"`);
    const script = readFileSync(join(ROOT, 'examples', 'transformer.py'), 'utf8');
    writeFileSync(join(work, 'train.py'), script.replace('samples=512', 'samples=64')); // a guide is no long training
    writeFileSync(join(work, 'evaluate.py'), 'print("accuracy 1.0")\n');
    writeFileSync(join(work, 'train.log'), 'RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n');
    const args = ['--name', 'quickstart', '--device', 'cpu', '--budget', '300MiB', '--max-batch', '4'];
    const { code, stderr } = await oomtune.call(['find-batch', ...args, '--', PYTHON, 'train.py'], { cwd: work });
    expect(stderr).toContain('fit');
    expect(code).toBe(0);
  });
  afterAll(() => oomtune.close());

  /** A page's blocks as one script, on a small budget and without what prepares the machine. */
  async function follow(page: string): Promise<string> {
    const script = blocks(page)
      .join('\n')
      .replace(/^npm .*$/gm, '')
      .replace(/^.*XREAD BLOCK.*$/gm, '') // waits for the next event
      .replace(/--budget \S+/g, '--device cpu --budget 120MiB --max-batch 16');
    const env = { ...oomtune.env, PATH: `${join(work, 'bin')}:${oomtune.env.PATH}` };
    const { stdout } = await run('bash', ['--norc', '-euo', 'pipefail', '-c', script], {
      cwd: work,
      env,
      maxBuffer: 2 ** 24,
    });
    return stdout;
  }

  it('docs/guides/first-job.md', async () => {
    const said = await follow('docs/guides/first-job.md');
    expect(said).toMatch(/recommended +micro-batch \d+/);
    expect(said).toContain('train.py --batch-size');
    expect(said).toContain('accuracy 1.0');
    expect(said).toContain('device_oom');
  }, 300_000);

  it('docs/guides/recommendations.md', async () => {
    const said = await follow('docs/guides/recommendations.md');
    expect(said).toContain('quickstart:cpu:300m:1x\n');
    expect(said).toMatch(/^\S*python\S* train\.py --batch-size \d+ --accumulation 1$/m);
  });
});
