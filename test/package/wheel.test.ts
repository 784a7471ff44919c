import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findWheelBuilder } from '../../scripts/setup/python.mjs';
import { ROOT } from '../cli/oomtune.js';
import { call } from './installed.js';

const folder = mkdtempSync(join(tmpdir(), 'oomtune-wheel-'));
const site = join(folder, 'site');
const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string };
const python = findWheelBuilder() as string;
let wheel: string;

/** Without the checkout in reach: what is imported is what was installed. */
function run(args: string[], env: NodeJS.ProcessEnv = {}) {
  return call(python, args, { cwd: folder, env: { PATH: process.env.PATH, HOME: folder, ...env } });
}

beforeAll(async () => {
  const source = join(folder, 'python');
  const left = ['__pycache__', 'build'];
  cpSync(join(ROOT, 'python'), source, { recursive: true, filter: (path) => !left.includes(basename(path)) });
  const offline = ['--no-index', '--no-deps', '--no-build-isolation', '--disable-pip-version-check'];
  const built = await run(['-m', 'pip', 'wheel', ...offline, '--wheel-dir', folder, source]);
  if (built.code !== 0) throw new Error(built.stdout + built.stderr);
  wheel = join(folder, readdirSync(folder).find((name) => name.endsWith('.whl')) as string);
  const installed = await run(['-m', 'pip', 'install', '--no-index', '--target', site, wheel]);
  if (installed.code !== 0) throw new Error(installed.stdout + installed.stderr);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('the Python package', () => {
  it('is a wheel for any platform', () => {
    expect(basename(wheel)).toBe(`oomtune-${version}-py3-none-any.whl`);
  });

  it('needs no other package', () => {
    const metadata = readFileSync(join(site, `oomtune-${version}.dist-info`, 'METADATA'), 'utf8');
    expect(metadata).toContain('Name: oomtune\n');
    expect((metadata.match(/^Requires-Dist: .*$/gm) ?? []).filter((line) => !line.includes('extra =='))).toEqual([]);
  });

  it('holds every module, and leaves the interpreter as it starts alone', () => {
    const modules = (at: string) =>
      readdirSync(at, { recursive: true, encoding: 'utf8' })
        .filter((name) => name.endsWith('.py'))
        .sort();
    expect(modules(join(site, 'oomtune'))).toEqual(modules(join(ROOT, 'python', 'oomtune')));
    expect(readdirSync(site)).not.toContain('sitecustomize.py');
  });

  it('says of the command that its program is not there', async () => {
    const { code, stderr } = await run(['-m', 'oomtune', 'status'], { PYTHONPATH: site });
    expect([code, stderr]).toEqual([5, expect.stringContaining('Install the wheel of a release')]);
  });

  it('tells a script its configuration', async () => {
    const ask = 'import oomtune; c = oomtune.config(micro_batch=8); print(oomtune.__file__, c.micro_batch, c.amp)';
    const file = join(site, 'oomtune', '__init__.py');
    const env = { PYTHONPATH: site };
    expect((await run(['-c', ask], env)).stdout).toBe(`${file} 8 off\n`);
    const tuned = { ...env, OOMTUNE_MICRO_BATCH: '42', OOMTUNE_AMP: 'bf16' };
    expect((await run(['-c', ask], tuned)).stdout).toBe(`${file} 42 bf16\n`);
  });
});
