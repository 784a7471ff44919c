import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { hostname, tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { which } from '../../scripts/setup/system.mjs';

const run = promisify(execFile);
const PROGRAMS = ['munged', 'slurmctld', 'slurmd', 'sbatch', 'srun', 'scontrol', 'scancel', 'sinfo'];

/** Why there can be no Slurm here; null: there can. */
export function noSlurm(): string | null {
  const missing = PROGRAMS.filter((name) => which(name) === null);
  return missing.length === 0
    ? null
    : `not installed: ${missing.join(', ')} (Debian: slurmctld slurmd slurm-client munge)`;
}

export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address() as { port: number };
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/**
 * A cluster of this machine alone: munged, slurmctld and slurmd as this user, with all their state in one folder. Processes
 * are tracked by their parents, since a container has no cgroups to give away.
 */
export class Slurm {
  readonly folder = mkdtempSync(join(tmpdir(), 'oomtune-slurm-'));
  readonly env = { PATH: `${process.env.PATH}:/usr/sbin:/sbin`, SLURM_CONF: join(this.folder, 'slurm.conf') };
  readonly #daemons: ChildProcess[] = [];
  #controller: ChildProcess | null = null;
  #said = '';

  /** `more`: lines of slurm.conf that take the place of its own. */
  constructor(private readonly more: Record<string, string | string[]> = {}) {}

  async start(): Promise<void> {
    const at = (name: string) => join(this.folder, name);
    for (const name of ['state', 'spool']) mkdirSync(at(name));
    writeFileSync(at('munge.key'), randomBytes(1024), { mode: 0o600 });
    const user = userInfo().username;
    const [node = 'localhost'] = hostname().split('.');
    const configuration = {
      ClusterName: 'oomtune',
      SlurmctldHost: `${node}(127.0.0.1)`,
      SlurmctldPort: await freePort(),
      SlurmdPort: await freePort(),
      SlurmUser: user,
      SlurmdUser: user,
      AuthType: 'auth/munge',
      AuthInfo: `socket=${at('munge.sock')}`,
      CredType: 'cred/munge',
      StateSaveLocation: at('state'),
      SlurmdSpoolDir: at('spool'),
      SlurmctldPidFile: at('slurmctld.pid'),
      SlurmdPidFile: at('slurmd.pid'),
      ProctrackType: 'proctrack/linuxproc',
      TaskPlugin: 'task/none',
      SelectType: 'select/cons_tres',
      SelectTypeParameters: 'CR_Core',
      SchedulerType: 'sched/builtin',
      MpiDefault: 'none',
      JobAcctGatherType: 'jobacct_gather/none',
      SlurmdParameters: 'config_overrides',
      NodeName: `${node} NodeAddr=127.0.0.1 CPUs=2 RealMemory=4000 State=UNKNOWN`,
      PartitionName: [
        'all Nodes=ALL Default=YES MaxTime=INFINITE State=UP',
        'short Nodes=ALL MaxTime=1 State=UP', // minutes: the least there is
      ],
    };
    const lines = Object.entries({ ...configuration, ...this.more }).flatMap(([name, value]) =>
      [value].flat().map((one) => `${name}=${one}\n`),
    );
    writeFileSync(at('slurm.conf'), lines.join(''), { mode: 0o644 });
    writeFileSync(at('cgroup.conf'), 'CgroupAutomount=no\n');
    const places = ['key-file=munge.key', 'socket=munge.sock', 'pid-file=munge.pid', 'seed-file=munge.seed'];
    const munge = places.map((place) => place.replace(/(.*)=(.*)/, (_, name, file) => `--${name}=${at(file)}`));
    // --force: it wants no folder that others may write to above its own, and /tmp is one
    this.#daemon('munged', ['--foreground', '--force', '--num-threads=2', `--log-file=${at('munge.log')}`, ...munge]);
    await this.#until('munged', () => run('munge', ['-n', '-S', at('munge.sock')], { env: this.env }));
    this.startController();
    this.#daemon('slurmd', ['-D', '-f', at('slurm.conf')]);
    await this.#until('the node', async () => {
      const { stdout } = await run('sinfo', ['--noheader', '--format=%T'], { env: this.env });
      if (stdout.trim() !== 'idle') throw new Error(`the node is ${stdout.trim()}`);
    });
  }

  /** Anew, with the state that the last one saved. */
  startController(): void {
    this.#controller = this.#daemon('slurmctld', ['-D', '-f', join(this.folder, 'slurm.conf')]);
  }

  /** From now on nobody answers; what runs goes on. */
  async stopController(): Promise<void> {
    if (this.#controller !== null) await stopped(this.#controller);
    this.#controller = null;
  }

  #daemon(name: string, args: string[]): ChildProcess {
    const child = spawn(which(name) as string, args, { env: this.env, stdio: ['ignore', 'pipe', 'pipe'] });
    const hear = (text: Buffer) => {
      this.#said = `${this.#said}${text}`.slice(-8192);
    };
    child.stdout.on('data', hear);
    child.stderr.on('data', hear);
    this.#daemons.push(child);
    return child;
  }

  async #until(what: string, look: () => Promise<unknown>): Promise<void> {
    for (let tries = 0; ; tries++) {
      try {
        await look();
        return;
      } catch (error) {
        if (tries >= 60) throw new Error(`${what} did not come up: ${error}\n${this.#said}`);
        await sleep(250);
      }
    }
  }

  /** One of Slurm's own programs; returns what it prints. */
  async call(
    program: string,
    args: string[],
    options: { cwd?: string; env?: NodeJS.ProcessEnv } = {},
  ): Promise<string> {
    const PATH = `${options.env?.PATH ?? ''}:${this.env.PATH}`;
    const { stdout } = await run(program, args, { cwd: options.cwd, env: { ...options.env, ...this.env, PATH } });
    return stdout.trim();
  }

  /** What the controller says of a job. */
  async job(id: string): Promise<Record<string, string>> {
    const told = await this.call('scontrol', ['show', 'job', '--oneliner', id]);
    return Object.fromEntries([...told.matchAll(/(\S+?)=(\S*)/g)].map(([, name, value]) => [name, value]));
  }

  /** Waits until the job is in one of the states. (`sbatch --wait` itself looks only every ten seconds.) */
  async until(id: string, ...states: string[]): Promise<Record<string, string>> {
    for (;;) {
      const job = await this.job(id);
      if (states.includes(job.JobState ?? '')) return job;
      await sleep(200);
    }
  }

  ended(id: string): Promise<Record<string, string>> {
    return this.until(id, 'COMPLETED', 'FAILED', 'CANCELLED', 'TIMEOUT', 'NODE_FAIL', 'BOOT_FAIL');
  }

  async close(): Promise<void> {
    for (const child of this.#daemons.reverse()) await stopped(child);
    rmSync(this.folder, { recursive: true, force: true });
  }
}

async function stopped(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGTERM');
  await gone;
}
