import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { createRuntime } from '../../dist/runtime/index.js';

const DRIVER = fileURLToPath(new URL('./driver', import.meta.url));
const FINDERS = fileURLToPath(new URL('./finders.py', import.meta.url));

/** Runs a command under the budget to its end, in an environment of its own. */
async function launch(argv, folder, { device, budgetBytes }, env) {
  const runtime = await createRuntime();
  // A machine's own settings for its libraries stay (NCCL's, for one, may have to).
  const kept = /^(PATH|HOME|OMP_NUM_THREADS|LD_LIBRARY_PATH|PYTHONPATH|HF_HUB_OFFLINE|(NCCL|TORCH|NVSHMEM)_.*)$/;
  const own = Object.fromEntries(Object.entries(process.env).filter(([name]) => kept.test(name)));
  const run = await runtime.launch({
    jobId: 'bench',
    launch: 1,
    argv,
    cwd: process.cwd(),
    env: { ...own, ...(device === 'cpu' ? { CUDA_VISIBLE_DEVICES: '' } : {}), ...env },
    dir: mkdtempSync(join(folder, 'launch-')),
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
 * Resolves with whether it fits, the seconds that it took from start to end, its peak, and the seconds of each batch. `size`
 * may be a list: those are run in turn in the same process, for their speed.
 */
export function trial(workload, size, options) {
  return inFolder(async (folder) => {
    const result = join(folder, 'result');
    const started = performance.now();
    const run = () =>
      launch(workload.command, folder, options, {
        PYTHONPATH: [DRIVER, process.env.PYTHONPATH].filter(Boolean).join(':'),
        BENCH_STEPS: String(options.steps ?? 3),
        BENCH_ACCUMULATION: String(workload.accumulation ?? 1),
        BENCH_RESULT: result,
        ...(size === null ? {} : { BENCH_BATCH: String(size) }),
        ...options.env,
      });
    let { exit, log } = await run();
    // Somebody ended its supervisor: that says nothing of the size.
    if (exit.ended_by === 'supervisor-lost') ({ exit, log } = await run());
    const seconds = (performance.now() - started) / 1000;
    const peak = exit.ledger?.devices[0]?.peak_bytes ?? null;
    const told = existsSync(result) ? readFileSync(result, 'utf8').trim().split('\n') : [];
    const lines = told.filter(Boolean).map((line) => line.split(' ').map(Number));
    const speeds = lines.map(([one, ...batches]) => ({ size: one, batches }));
    if (exit.code === 0) return { size, fit: true, seconds, peak, speeds };
    // A size counts as too large only for memory: anything else would make the yardstick lie.
    if (!(exit.ledger?.refused > 0) && !/out of memory|not enough memory|can't allocate memory/i.test(log)) {
      const end = `${exit.signal ?? `exit status ${exit.code}`}, ended by ${exit.ended_by}`;
      throw new Error(
        `${workload.name} at ${size} failed for another reason than memory (${end}):\n${log.slice(-2000)}`,
      );
    }
    return { size, fit: false, seconds, peak, speeds };
  });
}

/**
 * The largest size that fits, with a fresh process for each: by doubling from 1 and bisection, or (`from`) outwards from a
 * size that is believed to be near it. Where what fits has gaps this is the lower edge of one of them.
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
  const first = Math.max(1, Math.floor((from ?? 1) / 50));
  if (from === null || (await fits(from))) {
    // Doubling steps up; from a size that is believed to be the largest they begin small, since what fits may have gaps.
    low = from ?? 0;
    for (let reach = first; high === null; reach *= 2) {
      const size = from === null ? reach : low + reach;
      if (await fits(size)) low = size;
      else high = size;
    }
  } else {
    high = from;
    for (let reach = first; low === 0 && high > 1; reach *= 2) {
      const size = Math.max(1, high - reach);
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

/** Samples per second at each size, ascending, in one process: the median of `steps` batches after 3 others; 0: did not fit. */
export async function speeds(workload, sizes, options, steps = 8) {
  const ascending = [...new Set(sizes)].sort((a, b) => a - b);
  const { speeds: told } = await trial(workload, ascending, { ...options, steps: steps + 3 });
  return ascending.map((size) => {
    const steady =
      told
        .find((one) => one.size === size)
        ?.batches.slice(3)
        .sort((a, b) => a - b) ?? [];
    return { size, samples_per_s: steady.length === 0 ? 0 : size / steady[Math.floor(steady.length / 2)] };
  });
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
