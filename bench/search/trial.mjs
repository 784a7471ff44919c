import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { createRuntime } from '../../dist/runtime/index.js';

const DRIVER = fileURLToPath(new URL('./driver', import.meta.url));

/**
 * Runs a command in a fresh process at one batch size (null: its own) under a budget, for a few optimizer steps.
 * Resolves with whether it fits, the seconds that it took from start to end, and those of its batches after the first.
 */
export async function trial(workload, size, { device, budgetBytes, steps = 3, env = {} }) {
  const folder = mkdtempSync(join(tmpdir(), 'oomtune-trial-'));
  const result = join(folder, 'result');
  const started = process.hrtime.bigint();
  try {
    const runtime = await createRuntime();
    const run = await runtime.launch({
      jobId: 'bench',
      launch: 1,
      argv: workload.command,
      cwd: workload.cwd ?? process.cwd(),
      env: {
        PATH: process.env.PATH,
        HOME: process.env.HOME,
        ...(process.env.OMP_NUM_THREADS ? { OMP_NUM_THREADS: process.env.OMP_NUM_THREADS } : {}),
        ...(device === 'cpu' ? { CUDA_VISIBLE_DEVICES: '' } : {}),
        PYTHONPATH: DRIVER,
        BENCH_STEPS: String(steps),
        BENCH_ACCUMULATION: String(workload.accumulation ?? 1),
        BENCH_RESULT: result,
        ...(size === null ? {} : { BENCH_BATCH: String(size) }),
        ...env,
      },
      dir: join(folder, 'launch'),
      devices: [device],
      budgetBytes,
      timeoutSeconds: 600,
      graceSeconds: 5,
      output: 'log',
    });
    const exit = await run.wait();
    const seconds = Number(process.hrtime.bigint() - started) / 1e9;
    const log = readFileSync(run.logFile, 'utf8');
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
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The largest size that fits, by doubling and bisection with a fresh process for each size. */
export async function bisect(workload, options, onTrial = () => {}) {
  const trials = [];
  const fits = async (size) => {
    const one = await trial(workload, size, options);
    trials.push(one);
    onTrial(one);
    return one.fit;
  };
  let low = 0;
  let high = 1;
  while (high <= (options.most ?? 1 << 20) && (await fits(high))) {
    low = high;
    high *= 2;
  }
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (await fits(middle)) low = middle;
    else high = middle;
  }
  const seconds = trials.reduce((sum, one) => sum + one.seconds, 0);
  return { size: low, attempts: trials.length, ooms: trials.filter((one) => !one.fit).length, seconds, trials };
}
