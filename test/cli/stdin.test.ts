import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Oomtune, PROGRAM, PYTHON, ROOT } from './oomtune.js';

const oomtune = new Oomtune();
const TINY = join(ROOT, 'test', 'fixtures', 'worker', 'tiny.py');
const TIGHT = ['--device', 'cpu', '--budget', '38MiB', '--', PYTHON];
const script = readFileSync(TINY, 'utf8');

beforeAll(() => writeFileSync(join(oomtune.home, 'tiny.py'), script));
afterAll(() => oomtune.close());

/** Runs the words in a shell, in which $OOMTUNE is the program. */
function shell(words: string) {
  const env = { ...oomtune.env, OOMTUNE: PROGRAM, PYTHON };
  return spawnSync('bash', ['-c', words], { cwd: oomtune.home, env, encoding: 'utf8' });
}

describe('what a job reads on its stdin', () => {
  it.each([
    ['a file', '< tiny.py'],
    ['a here-document', `<<'END'\n${script}\nEND`],
  ])('is read again from the beginning by each launch: %s', (kind, redirection) => {
    const { status, stdout, stderr } = shell(
      `"$OOMTUNE" run --name ${kind.replaceAll(' ', '-')} ${TIGHT.slice(0, -2).join(' ')} -- "$PYTHON" - ${redirection}`,
    );
    expect(status, stderr).toBe(0);
    expect(stderr).toContain('Out of memory as it stands');
    expect(stdout).toMatch(/trained: \d/);
  });

  it('is read again where it came through a pipe and was all there', () => {
    const { status, stdout, stderr } = shell(
      `cat tiny.py | { sleep 1; "$OOMTUNE" run --name piped ${TIGHT.slice(0, -2).join(' ')} -- "$PYTHON" -; }`,
    );
    expect(status, stderr).toBe(0);
    expect(stdout).toMatch(/trained: \d/);
  });

  it('is refused a second time where somebody still wrote it at the start: the job would read nothing, and end well', async () => {
    const { child, ended, said } = oomtune.start(['run', '--name', 'slow', ...TIGHT, '-']);
    await expect.poll(said, { timeout: 60_000 }).toContain('running');
    child.stdin?.end(script);
    const { code, stdout, stderr } = await ended;
    expect(code, stderr).toBe(2);
    expect(stdout).not.toContain('trained');
    expect(stderr).toContain('what was piped into it has been read');
  });

  it('is left to the loop of the shell around it', () => {
    const { status, stdout } = shell(
      `printf '1\\n2\\n3\\n' | while read -r n; do "$OOMTUNE" run --no-tune --device cpu -- echo "job $n"; done`,
    );
    expect({ status, stdout }).toEqual({ status: 0, stdout: 'job 1\njob 2\njob 3\n' });
  });

  it('is the script that a search goes by: another one is another job', async () => {
    const found = async (text: string) => {
      const args = ['find-batch', '--json', '--device', 'cpu', '--budget', '60MiB', '--', PYTHON, '-'];
      const { child, ended } = oomtune.start(args);
      child.stdin?.end(text);
      const { code, stdout, stderr } = await ended;
      expect(code, stderr).toBe(0);
      return JSON.parse(stdout) as { status: string; name: string };
    };
    const [one, other] = [await found(script), await found(`${script}\nprint("another")`)];
    expect(one.status).toBe('found');
    expect(other.name).not.toBe(one.name);
  });

  it('is nothing for a job in the queue: a script that would be read from there is refused', async () => {
    const { code, stderr } = await oomtune.call(['submit', '--device', 'cpu', '--', PYTHON, '-']);
    expect(code).toBe(2);
    expect(stderr).toContain('no stdin to read its script from');
  });
});
