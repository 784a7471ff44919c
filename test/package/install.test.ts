import { execFileSync } from 'node:child_process';
import { copyFileSync, existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { prebuiltFolder } from '../../src/runtime/native.js';
import { ROOT } from '../cli/oomtune.js';
import { Installed } from './installed.js';

const installed = new Installed();
const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string };
let files: string[];

/** Set-up of this file: one installation, which the tests use in turn. Its dependencies come from npm's cache or registry. */
beforeAll(async () => {
  const packed = await installed.pack();
  files = packed.files;
  const { code, stderr } = await installed.npm(['install', packed.tarball]);
  if (code !== 0) throw new Error(`npm install failed:\n${stderr}`);
  copyFileSync(join(ROOT, 'test', 'fixtures', 'package', 'tiny.py'), join(installed.folder, 'tiny.py'));
}, 300_000);
afterAll(() => installed.close());

describe('the packed package', () => {
  it('holds what runs, what is read and what can be built from, and nothing of the workshop', () => {
    for (const file of [
      'bin/oomtune.js',
      'dist/program/main.js',
      'dist/program/LICENSES.txt',
      'config/ladder.yaml',
      'config/signatures.yaml',
      'config/presets/timm.yaml',
      'python/inject/sitecustomize.py',
      'python/oomtune/__init__.py',
      'examples/mlp.py',
      'web/index.html',
      'CMakeLists.txt',
      'native/addon/addon.cpp',
      'scripts/package/install.mjs',
      'LICENSE',
      'README.md',
    ]) {
      expect(files).toContain(file);
    }
    expect(
      files.filter((file) =>
        /__pycache__|\.pyc$|^src\/|^test\/|^native\/test\/|^dist\/(?!program\/|config\/)|\.map$|\.d\.ts$/.test(file),
      ),
    ).toEqual([]);
  });

  it('holds the native runtime of this kind of machine, whole', () => {
    const folder = relative(ROOT, prebuiltFolder());
    for (const part of [
      'node-napi-v8.node',
      'oomtune-supervisor',
      'liboomtune_host.so',
      'cuda/libcuda.so.1',
      'cuda/libnvidia-ml.so.1',
    ]) {
      expect(files).toContain(`${folder}/${part}`);
    }
  });
});

describe('installed where there is no compiler', () => {
  it('has the libraries that are held to a version once, and no newer one beside', () => {
    const held = JSON.parse(readFileSync(join(installed.package, 'package.json'), 'utf8')).dependencies;
    // Newer ones of this part of fastify bring a library that Node 20.17 cannot load; overrides hold in a checkout alone
    const copies = readdirSync(join(installed.folder, 'app'), { recursive: true, encoding: 'utf8' })
      .filter((file) => file.endsWith('node_modules/light-my-request/package.json'))
      .map((file) => JSON.parse(readFileSync(join(installed.folder, 'app', file), 'utf8')).version);
    expect(copies).toEqual([held['light-my-request']]);
  });

  it('takes the prebuilt runtime and builds nothing', async () => {
    expect(existsSync(join(installed.package, 'build'))).toBe(false);
    const { code, stdout, stderr } = await installed.oomtune(['--version', '--json']);
    expect(stderr).toBe('');
    expect(code).toBe(0);
    expect(JSON.parse(stdout).versions).toMatchObject({
      oomtune: version,
      addon: version,
      supervisor: version,
      hook: version,
      node: process.versions.node,
    });
  });

  // Node 20 looks for it in the whole command line, and reads the file before any of our code runs
  it.each(['no-such-file', 'fifo'])('keeps --env-file from Node, which would read it: %s', async (name) => {
    if (name === 'fifo') execFileSync('mkfifo', [join(installed.folder, name)]);
    const verbs = ['submit', 'run', 'find-batch'].map((verb) =>
      installed.oomtune([verb, '--device', 'cpu', '--env-file', name, '--', 'true']),
    );
    for (const { code, stderr } of await Promise.all(verbs)) {
      expect([code, stderr]).toEqual([2, expect.stringContaining(`${name} cannot be read`)]);
      expect(stderr).toContain('OOMTUNE_USAGE');
    }
  });

  it('gives a job, and nothing else, the variables of --env-file', async () => {
    // Node itself would not start with the first
    writeFileSync(join(installed.folder, 'variables'), 'NODE_OPTIONS=--no-such-option\nCOLOUR=blue\n');
    const show = ['--', 'sh', '-c', 'echo $COLOUR $NODE_OPTIONS'];
    const args = ['run', '--no-tune', '--device', 'cpu', '--env-file', 'variables', ...show];
    const { code, stdout, stderr } = await installed.oomtune(args);
    expect([code, stdout], stderr).toEqual([0, 'blue --no-such-option\n']);
  });

  it('passes its own doctor', async () => {
    const { code, stdout } = await installed.oomtune(['doctor', '--json']);
    const { checks } = JSON.parse(stdout) as { checks: { check: string; status: string; found: string }[] };
    expect(checks.filter((check) => check.status === 'failed')).toEqual([]);
    expect(code).toBe(0);
  });

  it('finds the batch of a script, budget and hook at work', async () => {
    const args = ['find-batch', '--json', '--device', 'cpu', '--budget', '60MiB', '--', 'python3', 'tiny.py'];
    const { code, stdout, stderr } = await installed.oomtune(args);
    expect(code, stderr).toBe(0);
    const report = JSON.parse(stdout);
    expect(report.status).toBe('found');
    // the script holds more than 60 MiB at its largest: without the ledger no peak is known, and every size would fit
    expect(report.max_micro_batch).toBeGreaterThan(8);
    expect(report.peak_bytes).toBeGreaterThan(0.9 * 60 * 2 ** 20);
    expect(report.peak_bytes).toBeLessThanOrEqual(60 * 2 ** 20);
  });
});

describe('installed where the prebuilt runtime does not load', () => {
  beforeAll(() => {
    writeFileSync(join(prebuiltFolder(installed.package), 'node-napi-v8.node'), 'of another libc');
  });

  it('is installed all the same without a compiler, and doctor says what is missing', async () => {
    const { code, stderr } = await installed.npm(['rebuild', 'oomtune']);
    expect(code).toBe(0);
    expect(stderr).toContain('Install cmake and a C++ compiler, then run: npm rebuild oomtune');
    const doctor = await installed.oomtune(['doctor', '--json']);
    expect(doctor.code).toBe(5);
    const failed = JSON.parse(doctor.stdout).checks.filter((check: { status: string }) => check.status === 'failed');
    expect(failed).toMatchObject([{ check: 'native', remedy: expect.stringContaining('npm rebuild oomtune') }]);
  });

  it('builds from source with a compiler', async () => {
    const { code } = await installed.npm(['rebuild', 'oomtune'], { path: process.env.PATH as string });
    expect(code).toBe(0);
    const { stdout } = await installed.oomtune(['--version', '--json']);
    expect(JSON.parse(stdout).versions).toMatchObject({ addon: version, supervisor: version });
  }, 600_000);
});
