/** Starts a row's program: alone under a budget, and through oomtune's command line. */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { createRuntime } from '../../dist/runtime/index.js';
import { ROOT } from '../search/oomtune.mjs';

const OOMTUNE = join(ROOT, 'bin', 'oomtune.js');
const WATCH = [
  fileURLToPath(new URL('./watch', import.meta.url)),
  fileURLToPath(new URL('../search/driver', import.meta.url)),
];
const COMPARE = fileURLToPath(new URL('./compare.py', import.meta.url));

/** What every program gets: no network, no threads that change the order of sums, nothing random from run to run. */
const QUIET = {
  HF_HUB_OFFLINE: '1',
  HF_DATASETS_OFFLINE: '1',
  TRANSFORMERS_OFFLINE: '1',
  TOKENIZERS_PARALLELISM: 'false',
  WANDB_MODE: 'disabled',
  PYTHONHASHSEED: '0',
  CUBLAS_WORKSPACE_CONFIG: ':4096:8',
};

/** Of a machine's own settings those stay that its libraries may need. */
const KEPT = /^(PATH|HOME|LANG|LD_LIBRARY_PATH|OMP_NUM_THREADS|(NCCL|TORCH|CUDA)_.*)$/;

export function environment(row, place) {
  const own = Object.fromEntries(Object.entries(process.env).filter(([name]) => KEPT.test(name)));
  return {
    ...own,
    ...(place.device === 'cpu' ? { CUDA_VISIBLE_DEVICES: '', OMP_NUM_THREADS: '1' } : {}),
    ...QUIET,
    PYTHONPATH: [...(row.path ?? []).map((folder) => join(place.checkout, folder)), ...WATCH].join(':'),
    ...(row.made ? { UPSTREAM_MADE_DATA: '1' } : {}),
    ...(place.standIns.length > 0 ? { UPSTREAM_STAND_IN: place.standIns.join(',') } : {}),
    ...row.env,
  };
}

/** What a program is asked for beside its own work: an end after some optimizer steps, its weights, another batch size. */
function watched(row, place, { steps, weights, batch, nudged }) {
  place.count = (place.count ?? 0) + 1;
  const result = join(place.scratch, `result.${place.count}`);
  return {
    result,
    env:
      row.watch === false
        ? {}
        : {
            UPSTREAM_RESULT: result,
            UPSTREAM_STEPS: String(steps ?? 0),
            UPSTREAM_STARTED: String(Date.now() / 1000),
            ...(weights ? { UPSTREAM_WEIGHTS: weights } : {}),
            ...(nudged ? { UPSTREAM_NUDGED: '1' } : {}),
            ...(batch ? { BENCH_BATCH: String(batch) } : {}),
          },
  };
}

const told = (result) => (existsSync(result) ? JSON.parse(readFileSync(result, 'utf8')) : null);

/** Reads like the last words of a program: its error, not the frames above it. */
export const lastWords = (text, lines = 3) => text.trim().split('\n').slice(-lines).join(' / ').slice(-600);

/**
 * The program without oomtune's hook, under its runtime: a budget (null: none), and how much was held. Resolves with whether
 * it ran within the budget, its peak, and what the watcher told; `allocator`: the setting that belongs to the answer.
 * Throws when it fails for anything but memory.
 */
export async function alone(row, place, argv, { budgetBytes = null, allocator = {}, ...wanted }) {
  const runtime = await createRuntime();
  const { result, env } = watched(row, place, wanted);
  const folder = mkdtempSync(join(place.scratch, 'launch-'));
  const started = performance.now();
  const run = await runtime.launch({
    jobId: 'upstream',
    launch: 1,
    argv,
    cwd: place.cwd,
    env: { ...environment(row, place), ...env, ...allocator },
    dir: folder,
    devices: [place.device],
    budgetBytes,
    timeoutSeconds: Math.max(5, Math.round(place.left())),
    graceSeconds: 5,
    tied: true,
    output: 'log',
  });
  const exit = await run.wait();
  const log = readFileSync(run.logFile, 'utf8');
  rmSync(folder, { recursive: true, force: true });
  const peak = exit.ledger?.devices[0]?.peak_bytes ?? null;
  const seconds = (performance.now() - started) / 1000;
  // What the driver and libraries take no allocation is refused for: a process that held more than the budget did not fit it.
  const within = budgetBytes === null || (peak ?? 0) <= budgetBytes;
  const one = { fit: exit.code === 0 && within, seconds, peak, ...told(result) };
  if (exit.code === 0) return one;
  if (exit.ended_by === 'timeout') throw new Error('no time left');
  if (exit.ledger?.refused > 0 || /out of memory|not enough memory|can't allocate memory/i.test(log)) return one;
  throw new Error(`exit ${exit.signal ?? exit.code}, not for memory: ${lastWords(log)}`);
}

/** `oomtune VERB …` on the program: its exit status, its JSON document (find-batch) or report (run), what it said. */
export async function oomtune(verb, row, place, argv, options, wanted = null) {
  const { result, env } = wanted ? watched(row, place, wanted) : { env: {} };
  const variables = { ...environment(row, place), ...env };
  const report = join(place.scratch, 'report.json');
  rmSync(report, { force: true });
  const args = [
    OOMTUNE,
    verb,
    ...(verb === 'run' ? ['--report', report] : ['--json']),
    ...['--device', place.device, ...options],
    ...Object.entries(variables).flatMap(([name, value]) => ['--env', `${name}=${value}`]),
    ...['--', ...argv],
  ];
  const started = performance.now();
  const child = spawn(process.execPath, args, {
    cwd: place.cwd,
    env: { ...process.env, ...variables, PYTHONPATH: '', OOMTUNE_HOME: place.home },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  place.children.add(child);
  let [stdout, stderr, late] = ['', '', false];
  const timer = setTimeout(() => {
    late = true;
    child.kill('SIGTERM');
  }, Math.max(5, place.left()) * 1000);
  child.stdout.setEncoding('utf8').on('data', (part) => {
    stdout += part;
  });
  child.stderr.setEncoding('utf8').on('data', (part) => {
    stderr += part;
  });
  const [status] = await once(child, 'close');
  clearTimeout(timer);
  place.children.delete(child);
  if (late) throw new Error(`no time left after ${verb}: ${lastWords(stderr)}`);
  const text = verb === 'run' ? (existsSync(report) ? readFileSync(report, 'utf8') : 'null') : stdout;
  let document = null;
  try {
    document = JSON.parse(text);
  } catch {
    throw new Error(`oomtune ${verb} printed no report (exit ${status}): ${lastWords(stderr)}`);
  }
  const seconds = (performance.now() - started) / 1000;
  return { status, document, stderr, seconds, ...(wanted ? { watched: told(result) } : {}) };
}

/** A short call of Python; other rows go on meanwhile. Throws with its last words. */
export async function call(python, args) {
  try {
    return (await promisify(execFile)(python, args, { env: { ...process.env, CUDA_VISIBLE_DEVICES: '' } })).stdout;
  } catch (error) {
    throw new Error(lastWords(error.stderr ?? error.message, 1));
  }
}

/** How far two files of weights are apart; null where one of them was not written. */
export async function apart(python, one, other) {
  if (!existsSync(one) || !existsSync(other)) return null;
  return JSON.parse(await call(python, [COMPARE, one, other]));
}

const missing = new Map();

export async function missingModules(python, names) {
  for (const name of names.filter((one) => !missing.has(one))) {
    const absent = call(python, ['-c', `import ${name}`]).then(
      () => false,
      () => true,
    );
    missing.set(name, absent);
  }
  const absent = await Promise.all(names.map((name) => missing.get(name)));
  return names.filter((_, index) => absent[index]);
}
