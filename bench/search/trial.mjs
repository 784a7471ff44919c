import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { createRuntime } from '../../dist/runtime/index.js';

const DRIVER = fileURLToPath(new URL('./driver', import.meta.url));
const FINDERS = fileURLToPath(new URL('./finders.py', import.meta.url));

/** Runs a command under the budget to its end, in an environment of its own. */
async function launch(argv, folder, { device, budgetBytes }, env) {
  const runtime = await createRuntime();
  const kept = ['PATH', 'HOME', 'OMP_NUM_THREADS', 'LD_LIBRARY_PATH', 'PYTHONPATH', 'HF_HUB_OFFLINE'];
  const own = Object.fromEntries(kept.flatMap((name) => (process.env[name] ? [[name, process.env[name]]] : [])));
  const run = await runtime.launch({
    jobId: 'bench',
    launch: 1,
    argv,
    cwd: process.cwd(),
    env: { ...own, ...(device === 'cpu' ? { CUDA_VISIBLE_DEVICES: '' } : {}), ...env },
    dir: join(folder, 'launch'),
    devices: [device],
    budgetBytes,
    timeoutSeconds: 900,
    graceSeconds: 5,
    output: 'log',
  });
  const exit = await run.wait();
  return { exit, log: readFileSync(run.logFile, 'utf8') };
}

async function inFolder(work) {
  const folder = mkdtempSync(join(tmpdir(), 'oomtune-trial-'));
  try {
    return await work(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/**
 * Runs a command in a fresh process at one batch size (null: its own) under a budget, for a few optimizer steps.
 * Resolves with whether it fits, the seconds that it took from start to end, its peak, and the seconds of each batch.
 */
export function trial(workload, size, options) {
  return inFolder(async (folder) => {
    const result = join(folder, 'result');
    const started = performance.now();
    const { exit, log } = await launch(workload.command, folder, options, {
      PYTHONPATH: [DRIVER, process.env.PYTHONPATH].filter(Boolean).join(':'),
      BENCH_STEPS: String(options.steps ?? 3),
      BENCH_ACCUMULATION: String(workload.accumulation ?? 1),
      BENCH_RESULT: result,
      ...(size === null ? {} : { BENCH_BATCH: String(size) }),
      ...options.env,
    });
    const seconds = (performance.now() - started) / 1000;
    const peak = exit.ledger?.devices[0]?.peak_bytes ?? null;
    if (exit.code === 0) {
      const batches = readFileSync(result, 'utf8').split(' ').map(Number);
      return { size, fit: true, seconds, peak, batches };
    }
    // A size counts as too large only for memory: anything else would make the yardstick lie.
    if (!(exit.ledger?.refused > 0) && !/out of memory|not enough memory|can't allocate memory/i.test(log)) {
      throw new Error(`${workload.name} at ${size} failed for another reason than memory:\n${log.slice(-2000)}`);
    }
    return { size, fit: false, seconds, peak, batches: [] };
  });
}

/**
 * The largest size that fits, with a fresh process for each: by doubling from 1 and bisection, or (`from`) outwards from a
 * size that is believed to be near it.
 */
export async function bisect(workload, options, onTrial = () => {}) {
  const trials = [];
  const fits = async (size) => {
    const one = await trial(workload, size, options);
    trials.push(one);
    onTrial(one);
    return one.fit;
  };
  const from = options.from ?? null;
  let low = 0;
  let high = null;
  if (from !== null) {
    for (let reach = Math.max(1, Math.floor(from / 50)); ; reach *= 4) {
      if (high === null) {
        const size = low === 0 ? from : low + reach;
        if (await fits(size)) low = size;
        else high = size;
      } else if (low === 0) {
        const size = Math.max(0, high - reach);
        if (size === 0 || (await fits(size))) low = size;
        else high = size;
        if (size === 0) break;
      }
      if (low > 0 && high !== null) break;
    }
  } else {
    for (let size = 1; high === null; size *= 2) {
      if (await fits(size)) low = size;
      else high = size;
    }
  }
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (await fits(middle)) low = middle;
    else high = middle;
  }
  const seconds = trials.reduce((sum, one) => sum + one.seconds, 0);
  return { size: low, attempts: trials.length, ooms: trials.filter((one) => !one.fit).length, seconds, trials };
}

/** Samples per second at one size, in the steady state: the median of 10 batches after 3 others. */
export async function speed(workload, size, options) {
  const { fit, batches } = await trial(workload, size, { ...options, steps: 13 });
  const steady = batches.slice(3).sort((a, b) => a - b);
  return { size, samples_per_s: fit ? size / steady[Math.floor(steady.length / 2)] : 0 };
}

/** A peer's finder on the same script under the same budget; `found` null when it failed. */
export function finder(python, kind, workload, options) {
  return inFolder(async (folder) => {
    const started = performance.now();
    const argv = [python, FINDERS, kind, workload.command.at(-1)];
    const { log } = await launch(argv, folder, options, options.env);
    const seconds = (performance.now() - started) / 1000;
    const line = log.split('\n').findLast((text) => text.startsWith('{"finder"'));
    if (line === undefined) return { finder: kind, found: null, attempts: null, seconds, error: log.slice(-1000) };
    return { ...JSON.parse(line), seconds };
  });
}
