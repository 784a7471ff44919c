#!/usr/bin/env node
/**
 * Replays a trace of jobs on one GPU through the daemon, its Redis and the command line: each job alone on the GPU
 * (`exclusive`), and side by side by what was recorded of it (`packed`: `submit --share`, no budget declared).
 * node bench/sharing/run.mjs [--modes exclusive,packed] [--together] [--gpus 0,1] [--jobs 90] [--train-seconds 140]
 *                            [--arrive-seconds 140] [--seed 1] [--kinds gpt,vit] [--minutes N] [--home DIR] [--out DIR]
 *                            [--python PATH] [--dry]
 * First each kind of job runs once, so that its configuration, its peak and its pace are recorded: counted by itself, the same
 * for both modes. --home DIR keeps these recordings; a later run with it begins at the replay. Modes run one after the other
 * on the first GPU, or with --together at once, a GPU each, each with a daemon, a Redis and as many cores of its own.
 * After --minutes nothing more is waited for: what has not ended is cancelled and named. Results go to
 * bench/results/sharing-gpu.jsonl and .md, or to --out DIR. --dry: a stand-in for the GPU, and everything tiny on the CPU.
 */
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { cpus, tmpdir, totalmem } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { coresOf, ENDED, Host, ROOT } from './host.mjs';
import { page } from './report.mjs';
import { ALL_KINDS, trace } from './trace.mjs';

const MODES = { exclusive: [], packed: ['--share'] };

const option = (name, preset) => {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? preset : process.argv[at + 1];
};
const flag = (name) => process.argv.includes(`--${name}`);

const dry = flag('dry');
const python = option('python', dry ? '/usr/bin/python3' : 'python3');
const modes = option('modes', 'exclusive,packed').split(',');
const together = flag('together');
const gpus = option('gpus', together ? modes.map((_, at) => at).join(',') : '0')
  .split(',')
  .map(Number);
const plan = {
  jobs: Number(option('jobs', 90)),
  trainSeconds: Number(option('train-seconds', 140)),
  arriveSeconds: Number(option('arrive-seconds', 140)),
  seed: Number(option('seed', 1)),
};
const begun = Date.now();
const deadline = begun + Number(option('minutes', 600)) * 60_000;
const out = resolve(option('out', join(ROOT, 'bench/results')));
const work = mkdtempSync(join(tmpdir(), 'oomtune-replay-'));
const kept = option('home', null);
const recordings = resolve(kept ?? join(work, 'recorded'));
const wanted = option('kinds', ALL_KINDS.join(',')).split(',');
const rows = [];

for (const mode of modes) if (!(mode in MODES)) throw new Error(`no mode ${mode}: ${Object.keys(MODES).join(', ')}`);
if (together && gpus.length < modes.length) throw new Error('--together needs a GPU for each mode: --gpus 0,1');
const say = (text) => process.stderr.write(`${((Date.now() - begun) / 1000).toFixed(0).padStart(4)} s  ${text}\n`);
const write = () => {
  mkdirSync(out, { recursive: true });
  writeFileSync(join(out, 'sharing-gpu.jsonl'), rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  writeFileSync(join(out, 'sharing-gpu.md'), page(rows));
};

function conditions() {
  const said = (command, args) => spawnSync(command, args, { encoding: 'utf8' }).stdout?.trim() ?? '';
  const gpu = said('nvidia-smi', ['--query-gpu=name,driver_version,memory.total', '--format=csv,noheader']);
  return {
    row: 'run',
    command: `node bench/sharing/run.mjs ${process.argv.slice(2).join(' ')}`.trim(),
    date: new Date().toISOString().slice(0, 10),
    gpu: gpu.split('\n')[0] || 'no GPU',
    cpu: `${cpus().length} x ${cpus()[0]?.model.trim()}`,
    memory_gib: Math.round(totalmem() / 2 ** 30),
    torch: said(python, ['-c', 'import torch; print(torch.__version__)']),
    node: process.versions.node,
    oomtune: JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')).version,
    ...plan,
    together,
    dry,
  };
}

const notes = (file) =>
  existsSync(file)
    ? readFileSync(file, 'utf8')
        .trim()
        .split('\n')
        .filter(Boolean)
        .map((line) => JSON.parse(line))
    : [];

/** One job of each kind, on all GPUs that are used. */
async function record() {
  const host = new Host(recordings, { gpus, dry });
  const log = join(recordings, 'recorded.jsonl');
  const done = join(recordings, 'kinds.json');
  if (existsSync(done)) {
    rows.push(...JSON.parse(readFileSync(done, 'utf8')));
    say(`the recordings in ${recordings} are used`);
    return host;
  }
  const from = Date.now();
  rmSync(log, { force: true });
  await host.start();
  try {
    const ids = new Map();
    for (const kind of wanted) {
      ids.set(
        kind,
        await host.submit(kind, python, ['--share', '--time', '3m'], { REPLAY_LOG: log, REPLAY_SECONDS: dry ? 1 : 4 }),
      );
    }
    let left = ids.size;
    const jobs = await host.ended([...ids.values()], deadline, (_, open) => {
      if (open.length < left) say(`${ids.size - open.length} of ${ids.size} kinds are recorded`);
      left = open.length;
    });
    const seen = notes(log);
    const found = wanted.map((kind) => {
      const job = jobs.get(ids.get(kind));
      const own = seen.findLast((line) => line.job === ids.get(kind) && line.steps_per_s);
      if (job?.state !== 'succeeded' || !own) {
        say(`${kind} could not be recorded and is left out: ${JSON.stringify(job?.failure ?? job?.state)}`);
        return { row: 'left out', kind, state: job?.state, failure: job?.failure ?? null };
      }
      return {
        row: 'kind',
        kind,
        peak_bytes: job.memory?.peak_bytes ?? null,
        torch_peak_bytes: own.torch_peak_bytes,
        steps_per_s: own.steps_per_s,
        start_s: own.first - own.begun,
        seconds: (Date.parse(job.ended_at) - Date.parse(job.started_at)) / 1000,
      };
    });
    if (!found.some(({ row }) => row === 'kind')) throw new Error('no kind of job could be recorded');
    found.push({ row: 'recorded', seconds: (Date.now() - from) / 1000, gpus: gpus.length });
    writeFileSync(done, JSON.stringify(found));
    rows.push(...found);
  } finally {
    await host.stop({ kill: true });
  }
  say('all kinds are recorded');
  return host;
}

/** Samples how busy the GPU is and how much of its memory is used, until it is stopped; null: nobody tells. */
function sampler(gpu) {
  const args = [
    '-i',
    String(gpu),
    '--query-gpu=utilization.gpu,memory.used',
    '--format=csv,noheader,nounits',
    '-lms',
    '500',
  ];
  const child = dry ? null : spawn('nvidia-smi', args, { stdio: ['ignore', 'pipe', 'ignore'] });
  const samples = [];
  child?.on('error', () => {});
  if (child !== null) createInterface(child.stdout).on('line', (line) => samples.push(line.split(',').map(Number)));
  const mean = (at) => samples.reduce((total, sample) => total + sample[at], 0) / samples.length;
  return () => {
    child?.kill();
    if (samples.length === 0) return null;
    const most = Math.max(...samples.map((sample) => sample[1]));
    return { busy_pct: mean(0), memory_mean_mib: mean(1), memory_most_mib: most, samples: samples.length };
  };
}

async function replay(mode, gpu, cores, recorded) {
  const host = new Host(join(work, mode), { gpus: [gpu], cores, dry });
  host.inherit(recorded);
  const log = join(host.home, 'replayed.jsonl');
  const pace = new Map(rows.filter((row) => row.row === 'kind').map((row) => [row.kind, row.steps_per_s]));
  await host.start();
  const jobs = trace(plan, [...pace.keys()]).map((job) => ({
    ...job,
    steps: Math.max(6, Math.round(job.trains * pace.get(job.kind))),
  }));
  const stop = sampler(gpu);
  const start = Date.now();
  let missing = [];
  let told = 0;
  try {
    const submitted = jobs.map(async (job) => {
      await sleep(job.arrives * 1000);
      if (Date.now() > deadline) return;
      job.arrived = Date.now();
      job.id = await host.submit(job.kind, python, MODES[mode], { REPLAY_STEPS: job.steps, REPLAY_LOG: log });
    });
    await Promise.all(submitted);
    say(`${mode}: all ${jobs.length} jobs have arrived`);
    const ids = jobs.flatMap(({ id }) => id ?? []);
    const ended = await host.ended(ids, deadline, (_, open) => {
      const done = ids.length - open.length;
      if (done < told + 10) return;
      told = done;
      say(`${mode}: ${done} of ${jobs.length} have ended`);
    });
    missing = jobs.filter(({ id }) => !ENDED.includes(ended.get(id)?.state));
    const open = missing.flatMap(({ id }) => id ?? []);
    const gpuFigures = stop();
    if (open.length > 0) await host.oomtune(['cancel', ...open]).catch((error) => say(error.message));
    rows.push(...resultsOf(mode, jobs, ended, { host, log, start, missing, gpuFigures }));
    write();
    const { makespan_s, oom_errors } = rows.findLast((row) => row.row === 'mode');
    say(`${mode}: ${makespan_s.toFixed(1)} s, ${oom_errors} out of memory, ${missing.length} missing`);
  } catch (error) {
    rows.push({ row: 'unfinished', mode, ended: told, after_s: (Date.now() - start) / 1000, why: error.message });
    write();
    throw error;
  } finally {
    stop();
    await host.stop({ kill: true });
  }
}

function resultsOf(mode, jobs, ended, { host, log, start, missing, gpuFigures }) {
  const seen = notes(log);
  const lines = jobs.map((job) => {
    const entry = ended.get(job.id);
    const lives = seen.filter((line) => line.job === job.id);
    const last = lives.findLast((line) => line.steps);
    const { launches, oom } = job.id ? host.launches(job.id) : { launches: 0, oom: 0 };
    const over = ENDED.includes(entry?.state);
    return {
      row: 'job',
      mode,
      at: job.at,
      kind: job.kind,
      steps: job.steps,
      state: over ? entry.state : 'missing',
      arrived_s: ((job.arrived ?? Number.NaN) - start) / 1000,
      started_s: entry?.started_at ? (Date.parse(entry.started_at) - start) / 1000 : null,
      ended_s: over ? (Date.parse(entry.ended_at) - start) / 1000 : null,
      start_s: last ? last.first - last.begun : null,
      trained_s: last ? last.ended - last.first : null,
      trained_steps: last?.steps ?? null,
      launches,
      /** Told by the program, by the launch's log, or by oomtune. */
      oom: Math.max(oom, lives.filter((line) => line.oom).length, /oom/.test(entry?.failure?.class ?? '') ? 1 : 0),
      failure: entry?.failure ?? null,
    };
  });
  const done = lines.filter(({ state }) => state === 'succeeded');
  const completions = done.map((line) => line.ended_s - line.arrived_s).sort((a, b) => a - b);
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const summary = {
    row: 'mode',
    mode,
    jobs: lines.length,
    succeeded: done.length,
    not_succeeded: lines
      .filter(({ state }) => state !== 'succeeded')
      .map(({ at, kind, state }) => `${at} ${kind}: ${state}`),
    missing: missing.length,
    makespan_s: Math.max(...lines.map((line) => line.ended_s ?? 0)) - Math.min(...lines.map((line) => line.arrived_s)),
    mean_completion_s: sum(completions) / completions.length,
    median_completion_s: completions[Math.floor(completions.length / 2)],
    p95_completion_s: completions[Math.floor(0.95 * completions.length)],
    mean_wait_s: sum(done.map((line) => line.started_s - line.arrived_s)) / done.length,
    oom_errors: sum(lines.map((line) => line.oom)),
    relaunched: lines.filter(({ launches }) => launches > 1).length,
    starts_s: sum(done.map((line) => line.start_s)),
    trained_s: sum(done.map((line) => line.trained_s)),
    steps: sum(done.map((line) => line.trained_steps ?? 0)),
    gpu: gpuFigures,
  };
  return [summary, ...lines];
}

try {
  rows.push(conditions());
  const recorded = await record();
  write();
  if (together) await Promise.all(modes.map((mode, at) => replay(mode, gpus[at], coresOf(at, modes.length), recorded)));
  else for (const mode of modes) await replay(mode, gpus[0], null, recorded);
  write();
  process.stdout.write(page(rows));
} finally {
  rmSync(work, { recursive: true, force: true, maxRetries: 5 });
}
const wrong = rows.filter((row) => row.row === 'mode' && (row.succeeded !== row.jobs || row.oom_errors > 0));
process.exit(wrong.length === 0 ? 0 : 1);
