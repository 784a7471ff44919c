#!/usr/bin/env node
/**
 * Compares `oomtune find-batch` on one NVIDIA GPU with the finders of accelerate and Lightning and with a fresh process for
 * each size, on the unmodified loops in bench/workloads (batch size 8, hard-coded) under a budget.
 * node bench/search/gpu.mjs [--parts search,sweep,truth,hold,checks,finders] [--only resnet50,gpt2] [--amp bf16,off]
 *                           [--budget 24GiB] [--device cuda:0] [--python PATH] [--together 6] [--minutes 9.5] [--full]
 *                           [--record] [--keep] [--dry]
 * Parts are done in the order in which they are named, each for all workloads, until the minutes are over: what was not
 * reached is named. `search` and `sweep` (samples/s from 50 % to 100 % of the largest size) have the card to themselves, and
 * so have `checks` (torchrun, half precision, activations in host memory, each to the end of a job); `truth` (a bisection
 * with a fresh process of ten steps for each size), `hold` (200 steps at the size found) and `finders` run --together N at a
 * time, each under its budget. --full bisects from 1 instead of outwards from what was found. --keep goes on from the last
 * record: what it has is not measured again unless --parts begins with search. --dry tries the whole of it on the CPU, with
 * the examples. Needs `npm run build`, redis-server, torch.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import PQueue from 'p-queue';
import { parseSize } from '../../dist/common/size.js';
import { checksOf } from './checks.mjs';
import { costOf, findBatch, interpreter, option, ROOT, stopRedis } from './oomtune.mjs';
import { gpuSummary, record, recorded } from './report.mjs';
import { bisect, finder, speeds, trial } from './trial.mjs';

/** Steps of a bare start, and of a trial of the yardstick: some sizes near the limit last three steps and not ten. */
const STEPS = 3;
const TRIAL_STEPS = 10;
const FINDERS = ['accelerate', 'power', 'binsearch'];

const flag = (name) => process.argv.includes(name);
const dry = flag('--dry');
const python = option('--python') ?? (dry ? interpreter() : 'python3');
const device = option('--device') ?? (dry ? 'cpu' : 'cuda:0');
const budget = option('--budget') ?? (dry ? '120MiB' : '24GiB');
const folder = join(ROOT, dry ? 'examples' : join('bench', 'workloads'));
const names = (option('--only') ?? (dry ? 'mlp,convnet' : 'gpt2,vit,resnet50,bert,unet')).split(',');
const amps = (option('--amp') ?? (dry ? 'off' : 'bf16,off')).split(',');
const parts = (option('--parts') ?? 'search,sweep,checks,truth,hold,finders').split(',');
const until = performance.now() + Number(option('--minutes') ?? 120) * 60_000;
const together = new PQueue({ concurrency: Number(option('--together') ?? 1) });
const file = dry ? 'search-dry' : 'search-gpu';

const home = mkdtempSync(join(tmpdir(), 'oomtune-bench-'));
const gpu = spawnSync('nvidia-smi', ['--query-gpu=name,driver_version', '--format=csv,noheader'], { encoding: 'utf8' });
const card = `${gpu.stdout?.split('\n')[0]?.replace(', ', ', driver ') ?? 'no GPU'}, budget ${budget}`;
const command = `node bench/search/gpu.mjs ${process.argv.slice(2).join(' ')}`.trim();
const rows = flag('--keep') ? recorded(file) : [];
const missed = [];
const write = () => {
  const text = gpuSummary('Search on one NVIDIA GPU', command, python, card, rows, missed);
  if (flag('--record')) record(file, rows, text);
  return text;
};
const say = (text) =>
  process.stderr.write(`${((performance.now() - begun) / 1000).toFixed(0).padStart(4)} s  ${text}\n`);
const begun = performance.now();

/** Does one piece of work if there is time; a failure of it is told, and the rest goes on. */
async function attempt(what, work) {
  if (performance.now() > until) return void missed.push(what);
  try {
    say(`${what}: ${await work()}`);
  } catch (error) {
    missed.push(what);
    say(`${what} failed: ${error.message}`);
  }
  write();
}

const jobs = amps.flatMap((amp) => names.map((name) => ({ name, amp })));
const rowOf = ({ name, amp }) => rows.find((row) => row.workload === name && row.amp === amp);
const workloadOf = ({ name }) => ({ name, command: [python, join(folder, `${name}.py`)] });
/** `row`: its answer is tried as it is to be run, with its allocator's setting. */
const optionsOf = ({ amp }, row = null) => ({
  device,
  budgetBytes: parseSize(budget),
  steps: STEPS,
  env: { WORKLOAD_AMP: amp, ...(row?.report?.config?.expandable_segments ? allocatorOf(row.report) : {}) },
});
const allocatorOf = ({ apply }) =>
  Object.fromEntries(Object.entries(apply.env).filter(([name]) => /^PYTORCH_.*ALLOC_CONF$/.test(name)));

async function searchOf(job) {
  const { name, amp } = job;
  const workload = workloadOf(job);
  // The better of two: the first on a machine reads libraries that no one has read before.
  const bare = [await trial(workload, null, optionsOf(job)), await trial(workload, null, optionsOf(job))];
  const more = ['--env', `WORKLOAD_AMP=${amp}`, '--amp', 'off']; // the script's own precision, whatever the ladder
  const found = await findBatch(workload, { home, device, budget, steps: STEPS, more });
  const row = {
    workload: name,
    amp,
    found: found.max_micro_batch,
    config: found.config?.micro_batch ?? null,
    ...costOf(found, Math.min(...bare.map((one) => one.seconds))),
    finders: [],
    report: found,
  };
  const before = rowOf(job);
  // The yardstick knows nothing of a search: it stays, and so do speeds if the size to use is among them.
  if (before?.trials) {
    for (const key of ['truth', 'trials', 'fits_above', 'bisection_attempts', 'bisection_s']) row[key] = before[key];
    row.share = row.truth === 0 ? 1 : (row.found ?? 0) / row.truth;
  }
  if (before?.sweep?.some((one) => one.size === row.config)) {
    row.sweep = before.sweep;
    row.speed_share = speedShare(row);
  }
  if (before) row.finders = before.finders;
  const at = rows.indexOf(before);
  rows.splice(at < 0 ? rows.length : at, at < 0 ? 0 : 1, row);
  return `${row.found} (use ${row.config}) in ${row.launches} launches, ${row.search_s.toFixed(1)} s`;
}

/** Speed of the recommended size against the best of the sweep. */
function speedShare({ sweep, config }) {
  const best = Math.max(...sweep.map((one) => one.samples_per_s));
  return (sweep.find((one) => one.size === config)?.samples_per_s ?? 0) / best;
}

async function sweepOf(job) {
  const row = rowOf(job);
  const parts = [0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1].map((part) => Math.max(1, Math.floor(part * row.found)));
  row.sweep = await speeds(workloadOf(job), [...parts, row.config], optionsOf(job, row));
  row.speed_share = speedShare(row);
  return `${row.config} runs at ${(100 * row.speed_share).toFixed(1)} % of the best`;
}

async function truthOf(job) {
  const row = rowOf(job);
  const options = { ...optionsOf(job), steps: TRIAL_STEPS };
  const truth = await bisect(workloadOf(job), { ...options, from: flag('--full') ? null : row.found });
  const trials = [...truth.trials];
  // Few sizes, far apart in memory: above one that fails another may fit again.
  const above = truth.size < 50 ? Math.ceil(0.2 * truth.size) : 0;
  for (let size = truth.size + 1; size <= truth.size + above; size += 1) {
    if (!trials.some((one) => one.size === size)) trials.push(await trial(workloadOf(job), size, options));
  }
  row.truth = truth.size;
  row.share = truth.size === 0 ? 1 : (row.found ?? 0) / truth.size;
  row.fits_above = trials.filter((one) => one.fit && one.size > truth.size).map((one) => one.size);
  row.bisection_attempts = truth.attempts;
  row.bisection_s = truth.seconds;
  row.trials = trials.map(({ size, fit, peak }) => ({ size, fit, peak }));
  return `${truth.size}${row.fits_above.length > 0 ? `, and ${row.fits_above.join(', ')} again` : ''}`;
}

async function holdOf(job) {
  const row = rowOf(job);
  row.holds_200_steps = (await trial(workloadOf(job), row.found, { ...optionsOf(job, row), steps: 200 })).fit;
  return row.holds_200_steps ? 'yes' : 'NO';
}

const has = { search: (row) => row.report, sweep: (row) => row.sweep, truth: (row) => row.trials };
has.hold = (row) => row.holds_200_steps !== undefined;

/** One part for every workload that it is still to be done for. */
async function part(kind) {
  if (kind === 'checks') {
    const options = { python, home, device, budget: dry ? '400MiB' : '8GiB', half: dry ? 'bf16' : 'fp16' };
    const checks = checksOf({ ...options, ranks: dry ? 2 : 1, width: dry ? 32 : 512 });
    const row = rows.find((one) => one.checks) ?? { checks: [] };
    for (const [name, check] of Object.entries(checks)) {
      if (row.checks.some((one) => one.name === name)) continue;
      await attempt(`check ${name}`, () => {
        const result = { name, ...check() };
        row.checks.push(result);
        if (!rows.includes(row)) rows.push(row);
        return `${result.ok ? 'ok' : 'NOT OK'}, ${result.said}`;
      });
    }
    return;
  }
  if (kind === 'finders') {
    const measured = (job, one) => rowOf(job)?.finders.some(({ finder: name }) => name === one);
    // accelerate and Lightning take the first precision only: they are the same whatever it is.
    const once = jobs.filter(({ amp }) => amp === amps[0]);
    const wanted = FINDERS.flatMap((one) => once.map((job) => ({ job, one })));
    const left = wanted.filter(({ job, one }) => rowOf(job) && !measured(job, one));
    await together.addAll(
      left.map(
        ({ job, one }) =>
          () =>
            attempt(`${one} on ${job.name} ${job.amp}`, async () => {
              const result = await finder(python, one, workloadOf(job), optionsOf(job));
              rowOf(job).finders.push(result);
              return result.found ?? 'failed';
            }),
      ),
    );
    return;
  }
  const works = { search: searchOf, sweep: sweepOf, truth: truthOf, hold: holdOf };
  const work = works[kind];
  const again = kind === 'search' && parts[0] === 'search';
  const left = jobs.filter(
    (job) => again || (kind === 'search' ? !rowOf(job) : rowOf(job)?.found && !has[kind](rowOf(job))),
  );
  const tasks = left.map((job) => () => attempt(`${kind} ${job.name} ${job.amp}`, () => work(job)));
  if (kind === 'search' || kind === 'sweep') for (const task of tasks) await task();
  else await together.addAll(tasks);
}

try {
  for (const kind of parts) await part(kind);
} finally {
  stopRedis(home);
  rmSync(home, { recursive: true, force: true });
}
process.stdout.write(write());
