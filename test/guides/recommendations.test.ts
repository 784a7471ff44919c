import { execFile } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { which } from '../../scripts/setup/system.mjs';
import { Oomtune, PYTHON, ROOT } from '../cli/oomtune.js';

const run = promisify(execFile);
const guide = readFileSync(join(ROOT, 'docs', 'guides', 'recommendations.md'), 'utf8');

/** The guide's example in a language. */
function example(language: string): string {
  const text = new RegExp(`^\`\`\`${language}\n([\\s\\S]*?)^\`\`\`$`, 'm').exec(guide)?.[1];
  if (!text) throw new Error(`the guide has no example in ${language}`);
  return text;
}

/** An interpreter with Redis's client library; Debian's python3-redis belongs to the system's own. */
const clients = async (path: string) =>
  run(path, ['-c', 'import redis']).then(
    () => true,
    () => false,
  );
const candidates = [PYTHON, '/usr/bin/python3'];
const found = await Promise.all(candidates.map(clients));
const python = candidates.find((_, place) => found[place]);
if (!python)
  console.warn('the Python example was not run: no interpreter has the redis package (Debian: python3-redis)');

/** Not brought by set-up: Go and this client are 80 MB of packages for one example. */
const REDIGO = '/usr/share/gocode/src/github.com/gomodule/redigo';
const go = which('go') !== null && existsSync(REDIGO) ? (which('go') as string) : null;
if (!go) console.warn('the Go example was not run (Debian: golang-go golang-github-gomodule-redigo-dev)');

describe('recommendations are read by other programs', () => {
  const oomtune = new Oomtune();
  let socket: string;
  let key: string;
  let recorded: Record<string, unknown>;

  beforeAll(async () => {
    const args = ['--name', 'resnet50', '--device', 'cpu', '--budget', '300MiB', '--max-batch', '4'];
    const script = join(ROOT, 'test', 'fixtures', 'package', 'tiny.py');
    const { code, stderr } = await oomtune.call(['find-batch', ...args, '--', PYTHON, script]);
    expect(code, stderr).toBe(0);
    socket = (await oomtune.call(['redis', 'url'])).stdout.trim().replace('unix://', '');
    const told = (await oomtune.json(['recommend', 'resnet50'])) as { recommendations: (typeof recorded)[] };
    recorded = told.recommendations[0] as typeof recorded;
    key = recorded.key as string;
  });
  afterAll(() => oomtune.close());

  it.skipIf(!python)('from Python, as the guide writes it', async () => {
    const text = example('python').replace(/resnet50:[^"]+/, key);
    const program = `socket = ${JSON.stringify(socket)}\n${text}\nprint(batch, accumulation)\n`;
    const { stdout } = await run(python as string, ['-c', program]);
    expect(stdout).toBe(`${recorded.micro_batch} ${recorded.accumulation}\n`);
  });

  it('by the package that comes with oomtune, as the guide writes it', async () => {
    const env = { ...oomtune.env, PYTHONPATH: join(ROOT, 'python') };
    const { stdout } = await run(PYTHON, ['-c', example('py')], { env });
    expect(stdout).toBe(`${recorded.micro_batch} ${recorded.accumulation} off False\n`);
  });

  it.skipIf(!go)('from Go, as the guide writes it', async () => {
    const file = join(oomtune.home, 'main.go');
    writeFileSync(file, example('go').replace(/resnet50:[^"]+/, key));
    const env = { ...oomtune.env, GO111MODULE: 'off', GOPATH: '/usr/share/gocode', GOFLAGS: '' };
    const { stdout } = await run(go as string, ['run', file, socket], { env });
    expect(stdout).toBe(`${recorded.micro_batch} ${recorded.accumulation}\n`);
  });
});
