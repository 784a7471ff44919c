#!/usr/bin/env node
/**
 * Compares `oomtune estimate` with peaks that were measured on GPUs, and writes bench/results/estimate.md. README.md beside tells more.
 *
 *   node bench/estimate/run.mjs --python PY                        against what is recorded
 *   node bench/estimate/run.mjs --python PY --device cuda:0        measures the models of models.json first, on that GPU
 */
import { execFile } from 'node:child_process';
import { appendFileSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs, promisify } from 'node:util';
import { createRuntime } from '../../dist/runtime/index.js';
import { reportText } from './report.mjs';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const HERE = fileURLToPath(new URL('./', import.meta.url));
const TRUTH = join(ROOT, 'bench', 'results', 'estimate-gpu.jsonl');
const ESTIMATES = join(ROOT, 'bench', 'results', 'estimate.jsonl');
const REPORT = join(ROOT, 'bench', 'results', 'estimate.md');

const { values } = parseArgs({
  options: {
    python: { type: 'string', default: 'python3' },
    device: { type: 'string' },
    only: { type: 'string' },
    together: { type: 'string', default: '4' },
    keep: { type: 'boolean', default: false },
    report: { type: 'boolean', default: false },
  },
});
const chosen = (name) => values.only === undefined || values.only.split(',').includes(name);
const lines = (path) =>
  existsSync(path)
    ? readFileSync(path, 'utf8')
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => JSON.parse(line))
    : [];

const { rows } = JSON.parse(readFileSync(join(HERE, 'models.json'), 'utf8'));
const argvOf = ({ kind, name, batch, amp, optimizer }) => [
  values.python,
  join(HERE, 'train.py'),
  ...[kind, name, '--batch', String(batch), '--amp', amp, '--optimizer', optimizer],
];

/** A model's peak on the GPU: what the runtime's ledger saw (the context included), and torch's own figures. */
async function measure(row) {
  const folder = mkdtempSync(join(tmpdir(), 'oomtune-estimate-'));
  try {
    const runtime = await createRuntime();
    const run = await runtime.launch({
      jobId: 'bench',
      launch: 1,
      argv: argvOf(row),
      cwd: folder,
      env: { ...process.env, HF_HUB_OFFLINE: '1' },
      dir: join(folder, 'launch'),
      devices: [values.device],
      budgetBytes: null,
      timeoutSeconds: 300,
      graceSeconds: 5,
      output: 'log',
    });
    const exit = await run.wait();
    const log = readFileSync(run.logFile, 'utf8');
    const told = /^PEAK (.*)$/m.exec(log);
    if (exit.code !== 0 || told === null) return { ...row, failed: log.trim().split('\n').at(-1) };
    const device = exit.ledger?.devices.find(({ peak_bytes }) => peak_bytes > 0);
    return { ...row, ...JSON.parse(told[1]), total: device?.peak_bytes ?? null };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** What `estimate` says of a command, at its own batch and others; `failed`: why it says nothing. */
async function estimate(argv, { sizes = [], env = {} } = {}) {
  const args = ['estimate', '--json', '--card', 'H200', '--card', '24GiB'];
  for (const size of sizes) args.push('--micro-batch', String(size));
  const started = performance.now();
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [join(ROOT, 'bin', 'oomtune.js'), ...args, '--', ...argv],
    { env: { ...process.env, HF_HUB_OFFLINE: '1', ...env }, maxBuffer: 2 ** 26 },
  ).catch((error) => error);
  const said = JSON.parse(stdout);
  return said.error ? { failed: said.error.message } : { ...said, seconds: (performance.now() - started) / 1000 };
}

const versions = async () =>
  (await promisify(execFile)(values.python, ['-c', 'import torch; print(torch.__version__)'])).stdout.trim();

async function measureAll() {
  const todo = rows.filter(({ name }) => chosen(name));
  if (!values.keep) writeFileSync(TRUTH, '');
  const known = new Set(lines(TRUTH).map(({ kind, name }) => `${kind} ${name}`));
  const queue = todo.filter(({ kind, name }) => !known.has(`${kind} ${name}`));
  const about = { torch: await versions(), date: new Date().toISOString().slice(0, 10) };
  const runtime = await createRuntime();
  const gpu = (await runtime.devices()).find(({ id }) => id === values.device)?.model ?? values.device;
  const work = async () => {
    for (let row = queue.shift(); row !== undefined; row = queue.shift()) {
      const measured = { ...(await measure(row)), ...about, gpu };
      console.error(row.name, measured.failed ?? measured.total);
      appendFileSync(TRUTH, `${JSON.stringify(measured)}\n`);
    }
  };
  await Promise.all(Array.from({ length: Number(values.together) }, work));
}

/** Peaks of recorded searches: workload, precision, size, bytes with the context. */
function searches() {
  const found = [];
  for (const { workload, amp, report } of lines(join(ROOT, 'bench', 'results', 'search-gpu.jsonl'))) {
    if (report === undefined || !existsSync(join(ROOT, 'bench', 'workloads', `${workload}.py`))) continue;
    // What a fresh process held: later sizes of one process find the cache of those before.
    const fitted = report.probes.filter(({ outcome, peak_bytes }) => outcome === 'fit' && peak_bytes !== null);
    const sizes = new Map(fitted.map(({ micro_batch, peak_bytes }) => [micro_batch, peak_bytes]));
    // At the brim the allocator gives its cache back, so that the peak is the budget's.
    const below = [...sizes].filter(([, peak]) => peak < 0.97 * report.device.budget_bytes);
    const expandable = report.config?.expandable_segments === true;
    found.push({ workload, amp, expandable, sizes: below, largest: report.max_micro_batch });
  }
  return found;
}

async function estimateAll() {
  const kept = values.keep ? lines(ESTIMATES) : [];
  const done = new Set(kept.map(({ of, amp, batch }) => `${of} ${amp} ${batch}`));
  writeFileSync(ESTIMATES, kept.map((line) => `${JSON.stringify(line)}\n`).join(''));
  const torch = await versions();
  const say = (line) => {
    console.error(
      line.of,
      line.amp,
      line.batch,
      line.failed ?? `${((100 * line.estimate) / line.truth - 100).toFixed(1)} %`,
    );
    appendFileSync(ESTIMATES, `${JSON.stringify({ ...line, torch })}\n`);
  };
  for (const { workload, amp, expandable, sizes, largest } of searches()) {
    if (!chosen(workload) || sizes.every(([batch]) => done.has(`${workload} ${amp} ${batch}`))) continue;
    const said = await estimate([values.python, join(ROOT, 'bench', 'workloads', `${workload}.py`)], {
      sizes: sizes.map(([batch]) => batch),
      env: { WORKLOAD_AMP: amp, ...(expandable ? { PYTORCH_CUDA_ALLOC_CONF: 'expandable_segments:True' } : {}) },
    });
    for (const [batch, truth] of sizes) {
      const at = said.asked?.find(({ micro_batch }) => micro_batch === batch);
      const rest = said.failed ? { failed: said.failed } : { estimate: at.peak_bytes, seconds: said.seconds };
      say({
        of: workload,
        kind: 'search',
        amp,
        batch,
        truth,
        ...rest,
        largest,
        said_largest: said.cards?.[1].micro_batch,
      });
    }
  }
  for (const row of lines(TRUTH)) {
    if (row.failed || !chosen(row.name) || done.has(`${row.name} ${row.amp} ${row.batch}`)) continue;
    // Three sizes are followed in one loop, which has to be long enough for them.
    const said = await estimate([...argvOf(row), '--steps', '100']);
    const rest = said.failed
      ? { failed: said.failed }
      : { estimate: said.own.peak_bytes, reserved: said.own.reserved_bytes, seconds: said.seconds };
    say({
      of: row.name,
      kind: row.kind,
      amp: row.amp,
      batch: row.batch,
      truth: row.total,
      truth_reserved: row.reserved,
      ...rest,
    });
  }
}

if (!values.report) {
  if (values.device !== undefined) await measureAll();
  await estimateAll();
}
writeFileSync(REPORT, reportText(lines(ESTIMATES), lines(TRUTH), process.argv.slice(2)));
