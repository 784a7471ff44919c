import { type ExecFileException, execFile } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findPython } from '../../scripts/setup/python.mjs';
import { which } from '../../scripts/setup/system.mjs';
import { ROOT } from '../cli/oomtune.js';

export interface Done {
  code: number;
  stdout: string;
  stderr: string;
}

export interface Release {
  tarball: string;
  wheel: string;
  sbom: string;
  checksums: string;
  /** What is in the tarball. */
  files: string[];
  said: string;
}

/** Runs a program to its end; an exit code other than 0 is an answer like any other. */
export function call(file: string, args: string[], options: { cwd: string; env: NodeJS.ProcessEnv }): Promise<Done> {
  return new Promise((resolve, reject) => {
    execFile(file, args, { ...options, maxBuffer: 2 ** 26 }, (error: ExecFileException | null, stdout, stderr) => {
      if (error && typeof error.code !== 'number') reject(error);
      else resolve({ code: (error?.code as number | undefined) ?? 0, stdout, stderr });
    });
  });
}

/** What a machine has that runs oomtune: Node, a shell, Python and Redis. No compiler, no cmake, no make. */
const PROGRAMS = ['node', 'sh', 'env', 'flock', 'redis-server', 'redis-cli'];

/** An empty folder into which the packed package is installed as users install it. */
export class Installed {
  readonly folder = mkdtempSync(join(tmpdir(), 'oomtune-package-'));
  readonly package = join(this.folder, 'app', 'node_modules', 'oomtune');
  /** The only folder on PATH. */
  readonly bin = join(this.folder, 'bin');
  readonly #npm = join(realpathSync(which('npm') as string)); // npm-cli.js

  constructor() {
    mkdirSync(this.bin);
    mkdirSync(join(this.folder, 'app'));
    for (const name of PROGRAMS) symlinkSync(which(name) as string, join(this.bin, name));
    // not a link: a virtual environment's interpreter knows its packages by the place that it is started from
    writeFileSync(join(this.bin, 'python3'), `#!/bin/sh\nexec '${findPython()?.path}' "$@"\n`);
    chmodSync(join(this.bin, 'python3'), 0o755);
  }

  /** npm as this machine has it, with its registry and cache. The registry is asked only for what the cache lacks. */
  npm(args: string[], { path = this.bin, cwd = join(this.folder, 'app') } = {}): Promise<Done> {
    const env = {
      ...process.env,
      PATH: path,
      npm_config_prefer_offline: 'true',
      npm_config_foreground_scripts: 'true',
    };
    return call(process.execPath, [this.#npm, ...args, '--no-audit', '--no-fund'], { cwd, env });
  }

  /** Packs the checkout as a release is packed; returns its files, and the names of what is in npm's. */
  async release(): Promise<Release> {
    const script = join(ROOT, 'scripts', 'release.mjs');
    const args = [script, 'pack', '--draft', '--out', join(this.folder, 'release')];
    const { code, stdout, stderr } = await call(process.execPath, args, { cwd: ROOT, env: process.env });
    if (code !== 0) throw new Error(stderr);
    const paths = stdout.trim().split('\n');
    const named = (end: string): string => paths.find((path) => path.endsWith(end)) as string;
    const listed = await call('tar', ['-tzf', named('.tgz')], { cwd: this.folder, env: process.env });
    return {
      tarball: named('.tgz'),
      wheel: named('.whl'),
      sbom: named('.cdx.json'),
      checksums: named('SHA256SUMS'),
      files: listed.stdout
        .trim()
        .split('\n')
        .map((file) => file.replace('package/', '')),
      said: stderr,
    };
  }

  /** The installed program, with nothing in its environment but what it needs. */
  oomtune(
    args: string[],
    { program = join(this.folder, 'app', 'node_modules', '.bin', 'oomtune'), path = this.bin } = {},
  ) {
    const env = { PATH: path, HOME: this.folder, OOMTUNE_HOME: join(this.folder, 'home'), OMP_NUM_THREADS: '1' };
    return call(program, args, { cwd: this.folder, env });
  }

  async close(): Promise<void> {
    await this.oomtune(['redis', 'stop']).catch(() => {}); // it may not have come to an installation
    rmSync(this.folder, { recursive: true, force: true });
  }
}
