// A host of its own: a home with its Redis, a daemon on one or more GPUs, and the program as a user calls it.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdirSync, openSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

export const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const OOMTUNE = join(ROOT, 'bin/oomtune.js');
const STAND_IN = join(ROOT, 'test/fixtures/daemon/daemon.mjs');
export const ENDED = ['succeeded', 'failed', 'cancelled', 'exhausted', 'timeout'];

export class Host {
  #daemon = null;

  /** `gpus`: their indices. `cores`: [first, last] for daemon and jobs; null: all. `dry`: a stand-in for the GPU, jobs on the CPU. */
  constructor(home, { gpus, cores = null, dry = false }) {
    mkdirSync(home, { recursive: true, mode: 0o700 });
    this.home = home;
    this.gpus = gpus;
    this.dry = dry;
    this.prefix = cores === null ? [] : ['taskset', '-c', cores.join('-')];
    this.env = { ...process.env, OOMTUNE_HOME: home };
    delete this.env.OOMTUNE_REDIS_URL;
    if (!dry) this.env.CUDA_VISIBLE_DEVICES = gpus.join(',');
  }

  /** What another host has recorded is known here, too. Both stand still. */
  inherit(other) {
    const from = join(other.home, 'redis/appendonlydir');
    if (!existsSync(from)) throw new Error(`${from} is not there`);
    mkdirSync(join(this.home, 'redis'), { recursive: true, mode: 0o700 });
    cpSync(from, join(this.home, 'redis/appendonlydir'), { recursive: true });
  }

  async start() {
    if (!this.dry) return void (await this.oomtune(['daemon', 'start', '--http-port', '0']));
    const settings = { gpus: this.gpus.map(() => 'Stand-in'), cpuLanes: 4 };
    const log = openSync(join(this.home, 'stand-in.log'), 'a');
    const argv = [...this.prefix, process.execPath, STAND_IN, JSON.stringify(settings)];
    this.#daemon = spawn(argv[0], argv.slice(1), { env: this.env, stdio: ['ignore', 'ignore', log] });
    const until = Date.now() + 30_000;
    while (!readFileSync(join(this.home, 'stand-in.log'), 'utf8').includes('daemon ready')) {
      if (Date.now() > until) throw new Error('the stand-in daemon did not start');
      await sleep(100);
    }
  }

  /** Ends daemon and Redis; with `kill` the jobs, too. */
  async stop({ kill = false } = {}) {
    await this.oomtune(['daemon', 'stop', ...(kill ? ['--kill'] : [])]).catch((error) => {
      process.stderr.write(`${error.message}\n`);
    });
    if (this.#daemon !== null && this.#daemon.exitCode === null) await once(this.#daemon, 'exit');
    this.#daemon = null;
    await this.oomtune(['redis', 'stop']);
  }

  /** Resolves to stdout; rejects with what it said where it failed. */
  async oomtune(args) {
    const argv = [...this.prefix, process.execPath, OOMTUNE, ...args];
    const child = spawn(argv[0], argv.slice(1), { env: this.env, stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    let said = '';
    child.stdout.setEncoding('utf8').on('data', (text) => (output += text));
    child.stderr.setEncoding('utf8').on('data', (text) => (said += text));
    const [code] = await once(child, 'close');
    if (code !== 0) throw new Error(`oomtune ${args[0]} ended with ${code}: ${said.trim()}`);
    return output;
  }

  /** Returns the job's id. */
  async submit(kind, python, flags, variables) {
    const env = Object.entries(variables).flatMap(([name, value]) => ['--env', `${name}=${value}`]);
    const command = [python, join(ROOT, 'bench/sharing/train.py'), kind];
    return (
      await this.oomtune(['submit', '--name', kind, '--device', 'cuda', ...flags, ...env, '--', ...command])
    ).trim();
  }

  /** Status entries of these jobs, by id. */
  async jobs(ids) {
    const { jobs } = JSON.parse(await this.oomtune(['status', '--json', '-n', '1000']));
    return new Map(jobs.filter(({ job }) => ids.includes(job)).map((job) => [job.job, job]));
  }

  /** Waits until these jobs have ended, or until the time (ms). Returns all entries. Rejects where `status` failed five times in a row. */
  async ended(ids, until, onLook = () => {}) {
    for (let failures = 0; ; ) {
      let jobs;
      try {
        jobs = await this.jobs(ids);
        failures = 0;
      } catch (error) {
        failures += 1;
        if (failures === 5) throw error;
        process.stderr.write(`${error.message}: tried again\n`);
        await sleep(2000);
        continue;
      }
      const open = ids.filter((id) => !ENDED.includes(jobs.get(id)?.state));
      onLook(jobs, open);
      if (open.length === 0 || Date.now() > until) return jobs;
      await sleep(2000);
    }
  }

  /** How often the command was launched for the job, and in how many of the logs memory ran out. */
  launches(job) {
    const folder = join(this.home, 'runs', job);
    if (!existsSync(folder)) return { launches: 0, oom: 0 };
    const logs = readdirSync(folder, { recursive: true }).filter((file) => /(^|\/)log$|\.log$/.test(String(file)));
    const oom = logs.filter((file) =>
      /out of memory|OutOfMemory/i.test(readFileSync(join(folder, String(file)), 'utf8')),
    );
    return { launches: logs.length, oom: oom.length };
  }

  remove() {
    rmSync(this.home, { recursive: true, force: true, maxRetries: 5 });
  }
}

/** An equal part of the cores for each of so many at once, 16 at most: what the figures of one are compared with has as many. */
export function coresOf(at, count) {
  if (count === 1) return null;
  const each = Math.min(16, Math.floor(availableParallelism() / count));
  return [at * each, (at + 1) * each - 1];
}
