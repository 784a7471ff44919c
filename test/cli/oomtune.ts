import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = fileURLToPath(new URL('../../', import.meta.url));
export const PROGRAM = join(ROOT, 'bin', 'oomtune.js');

export interface Ended {
  code: number | null;
  signal: NodeJS.Signals | null;
  stdout: string;
  stderr: string;
}

/** The program as a user has it: its own state folder, its own Redis, real processes. */
export class Oomtune {
  readonly home = mkdtempSync(join(tmpdir(), 'oomtune-cli-'));
  readonly env: NodeJS.ProcessEnv = {
    PATH: process.env.PATH,
    HOME: this.home,
    LANG: 'C.UTF-8',
    OMP_NUM_THREADS: '1',
    OOMTUNE_HOME: this.home,
    OOMTUNE_PYTHON: process.env.OOMTUNE_PYTHON,
  };

  readonly #children = new Set<ChildProcess>();

  async call(args: string[], options: { env?: NodeJS.ProcessEnv; stdin?: string; cwd?: string } = {}): Promise<Ended> {
    const { child, ended } = this.start(args, options);
    child.stdin.on('error', () => {}); // it may not read what it is given
    child.stdin.end(options.stdin ?? '');
    return ended;
  }

  /** Starts it without waiting. */
  start(args: string[], options: { env?: NodeJS.ProcessEnv; cwd?: string } = {}) {
    const child = spawn(PROGRAM, args, {
      cwd: options.cwd ?? this.home,
      env: { ...this.env, ...options.env },
    });
    this.#children.add(child);
    child.once('close', () => this.#children.delete(child));
    let stdout = '';
    let stderr = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      stdout += text;
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      stderr += text;
    });
    const ended = new Promise<Ended>((resolve, reject) => {
      child.on('error', reject);
      child.on('close', (code, signal) => resolve({ code, signal, stdout, stderr }));
    });
    return { child, ended, said: () => stderr, printed: () => stdout };
  }

  async json(
    args: string[],
    options: { env?: NodeJS.ProcessEnv; stdin?: string; cwd?: string } = {},
  ): Promise<unknown> {
    const { stdout, stderr } = await this.call([...args.slice(0, 1), '--json', ...args.slice(1)], options);
    try {
      return JSON.parse(stdout);
    } catch {
      throw new Error(`no JSON from ${args.join(' ')}: ${stdout}\n${stderr}`);
    }
  }

  /** Processes, other than Redis and the daemon, that were started with this home and still live. */
  leftovers(): string[] {
    const found: string[] = [];
    for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
      try {
        const environ = readFileSync(`/proc/${pid}/environ`, 'utf8');
        if (!environ.split('\0').includes(`HOME=${this.home}`)) continue; // handed down to jobs too
        const command = readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').trim();
        if (command !== '' && !/redis-server|daemon (run|start)/.test(command)) found.push(`${pid} ${command}`);
      } catch {
        // it has ended between the two looks
      }
    }
    return found;
  }

  async close(): Promise<void> {
    for (const child of this.#children) child.kill('SIGTERM'); // of a test that failed
    await this.call(['daemon', 'stop', '--kill']);
    await this.call(['redis', 'stop']);
    rmSync(this.home, { recursive: true, force: true });
  }
}

/** An interpreter with torch; the suite's runner names the one that set-up found. */
export const PYTHON = process.env.OOMTUNE_PYTHON || '/usr/bin/python3';
