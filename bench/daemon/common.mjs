// What both benchmarks share: a home of their own, the program as a user has it, figures of this machine.
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { cpus, tmpdir, totalmem } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = fileURLToPath(new URL('../../', import.meta.url));
/** Of whoever started us, where that is a benchmark too. */
export const home = process.env.OOMTUNE_BENCH_HOME ?? mkdtempSync(join(tmpdir(), 'oomtune-bench-'));
process.env.OOMTUNE_HOME = home;
process.env.OOMTUNE_LOG ??= 'warn';

const { DEFAULT_OPTIONS } = await import(join(ROOT, 'dist/contract/options.js'));
export const { openStore } = await import(join(ROOT, 'dist/store/index.js'));
export const { submitJob, cancelJob, startDaemon, stopDaemon, daemonStatus } = await import(
  join(ROOT, 'dist/daemon/index.js')
);
export const { stopRedis, redisStatus } = await import(join(ROOT, 'dist/store/index.js'));

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
export const ENDED = ['succeeded', 'failed', 'cancelled', 'exhausted', 'timeout'];

export const options = (changes = {}) => ({
  ...DEFAULT_OPTIONS,
  device: 'cpu',
  budget: '64MiB',
  preset: 'none',
  cwd: home,
  tune: false,
  share: true,
  retries: 0,
  ...changes,
});

/** Kilobytes of resident memory; null where there is no such process. */
export function rss(pid) {
  try {
    return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0);
  } catch {
    return null;
  }
}

/** Living processes that belong to jobs of this home, supervisors included. */
export function orphans() {
  const mark = `${home}/runs/`;
  return readdirSync('/proc').filter((name) => {
    if (!/^\d+$/.test(name)) return false;
    try {
      const state = readFileSync(`/proc/${name}/stat`, 'latin1').split(') ').at(-1)?.[0];
      if (state === 'Z' || state === 'X') return false;
      return (
        readFileSync(`/proc/${name}/environ`, 'latin1').includes(`OOMTUNE_RUN_DIR=${mark}`) ||
        readFileSync(`/proc/${name}/cmdline`, 'latin1').includes(mark)
      );
    } catch {
      return false;
    }
  });
}

export function machine() {
  const version = (command, args) => {
    try {
      return execFileSync(command, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] })
        .trim()
        .split('\n')[0];
    } catch {
      return null;
    }
  };
  const load = (name) => JSON.parse(readFileSync(join(ROOT, 'node_modules', name, 'package.json'), 'utf8')).version;
  return {
    date: new Date().toISOString().slice(0, 10),
    cpu: `${cpus().length} x ${cpus()[0]?.model.trim()}`,
    memory_gib: Math.round(totalmem() / 1024 ** 3),
    node: process.version,
    redis: /v=([\d.]+)/.exec(version('redis-server', ['--version']) ?? '')?.[1] ?? null,
    bullmq: load('bullmq'),
    oomtune: JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')).version,
    commit: version('git', ['-C', ROOT, 'rev-parse', '--short', 'HEAD']),
    tsp: /v[\d.]+/.exec(version('tsp', ['-V']) ?? '')?.[0] ?? null,
  };
}

export const quantile = (values, q) => {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
};

export async function tidy(store) {
  await stopDaemon(store, { kill: true });
  await store.close();
  await stopRedis();
  rmSync(home, { recursive: true, force: true });
}

export { spawn };
