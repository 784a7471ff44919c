#!/usr/bin/env node
// Samples of many lengths under a budget: micro-batches counted in tokens beside those counted in samples, and beside the same
// size written by hand. `node bench/tokens/run.mjs [--steps N] [--long N] [--tiny] [--longest TOKENS] [--median TOKENS] [--device cpu|cuda] [--budget SIZE] [--python FILE]`
// appends a line to bench/results/tokens.jsonl. On the CPU the figure is samples a CPU second, as its cores may be shared.
import { execFileSync, spawnSync } from 'node:child_process';
import { appendFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const SCRIPT = join(ROOT, 'bench/tokens/train.py');
const { values } = parseArgs({
  options: {
    steps: { type: 'string', default: '20' },
    long: { type: 'string', default: '0' },
    tiny: { type: 'boolean', default: false },
    longest: { type: 'string' },
    median: { type: 'string' },
    device: { type: 'string', default: 'cpu' },
    budget: { type: 'string' },
    python: { type: 'string', default: process.env.OOMTUNE_PYTHON ?? 'python3' },
    out: { type: 'string', default: join(ROOT, 'bench/results/tokens.jsonl') },
  },
});
const gpu = values.device !== 'cpu';
const budgets = gpu ? { real: '16GiB', tiny: '1500MiB' } : { real: '250MiB', tiny: '150MiB' };
const budget = values.budget ?? budgets[values.tiny ? 'tiny' : 'real'];
const shape = (width, layers, vocabulary) => ['--width', width, '--layers', layers, '--vocabulary', vocabulary];
const models = gpu
  ? { real: shape('768', '12', '32000'), tiny: shape('64', '2', '4096') }
  : { real: [], tiny: shape('16', '1', '64') };
const lengths = ['longest', 'median'].filter((name) => values[name]).flatMap((name) => [`--${name}`, values[name]]);
const model = [...models[values.tiny ? 'tiny' : 'real'], ...lengths];
const home = mkdtempSync(join(tmpdir(), 'oomtune-tokens-'));
const env = { ...process.env, OOMTUNE_HOME: home, OOMTUNE_REDIS_URL: '', OMP_NUM_THREADS: gpu ? '' : '1' };
for (const name of Object.keys(env)) if (env[name] === '') delete env[name];
const own = { ...env, ...(gpu ? {} : { CUDA_VISIBLE_DEVICES: '' }) };

/** The script by itself. */
function alone(steps, more = []) {
  const args = [SCRIPT, '--steps', String(steps), ...model, ...more];
  const done = spawnSync(values.python, args, { env: own, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });
  return done.status === 0 ? trained(done.stdout) : null;
}

/** The same by `oomtune run`, with its report. */
function tuned(name, steps, more = []) {
  const report = join(home, `${name}.json`);
  const limits = ['--device', values.device, '--budget', budget, '--amp', 'off', '--checkpointing', 'off'];
  const words = ['run', '--name', name, ...limits, '--report', report, ...more, '--', values.python, SCRIPT];
  const argv = [join(ROOT, 'bin/oomtune.js'), ...words, '--steps', String(steps), ...model];
  const done = spawnSync(process.execPath, argv, { env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });
  const { config, outcome, launches, refused, devices } = JSON.parse(readFileSync(report, 'utf8'));
  return {
    outcome,
    launches,
    config,
    refused,
    peak_bytes: devices[0]?.peak_bytes,
    ...(done.status === 0 ? trained(done.stdout) : {}),
  };
}

const trained = (output) => JSON.parse(output.trim().split('\n').at(-1));
const rate = ({ samples, wall_s: wall, cpu_s: cpu }) => Number((samples / (gpu ? wall : cpu)).toPrecision(4));
const off = (one, other) => Math.abs(one.checksum / other.checksum - 1);

try {
  const steps = Number(values.steps);
  const whole = alone(steps);
  const counted = tuned('samples', steps);
  const tokens = tuned('tokens', steps, ['--micro-batch-tokens', 'auto']);
  const size = counted.config.micro_batch;
  const byHand = alone(steps, ['--batch', String(size), '--accumulate', String(64 / size)]);
  const long = Number(values.long) > 0 ? tuned('tokens', Number(values.long), ['--micro-batch-tokens', 'auto']) : null;
  const line = {
    at: new Date().toISOString(),
    device: gpu ? gpuName() : cpus()[0].model,
    torch: execFileSync(values.python, ['-c', 'import torch; print(torch.__version__)'], { encoding: 'utf8' }).trim(),
    node: process.version,
    budget,
    ...(lengths.length > 0 ? { lengths: lengths.join(' ') } : {}),
    steps,
    unit: gpu ? 'samples a second' : 'samples a CPU second',
    whole_batch_without_budget: whole && rate(whole),
    by_hand: byHand && { micro_batch: size, rate: rate(byHand) },
    samples: { ...shownOf(counted), off: whole && off(counted, whole) },
    tokens: { ...shownOf(tokens), off: whole && off(tokens, whole) },
    times_by_hand: byHand && Number((rate(tokens) / rate(byHand)).toPrecision(3)),
    times_samples: Number((rate(tokens) / rate(counted)).toPrecision(3)),
    ...(long === null ? {} : { long: { steps: Number(values.long), ...shownOf(long), launches: long.launches } }),
  };
  appendFileSync(values.out, `${JSON.stringify(line)}\n`);
  console.log(JSON.stringify(line, null, 2));
} finally {
  spawnSync(process.execPath, [join(ROOT, 'bin/oomtune.js'), 'redis', 'stop'], { env, stdio: 'ignore' });
  rmSync(home, { recursive: true, force: true });
}

function shownOf(run) {
  const { config, outcome, refused, peak_bytes } = run;
  const { micro_batch, micro_batch_tokens } = config;
  return { micro_batch, micro_batch_tokens, rate: rate(run), outcome, refused, peak_bytes };
}

function gpuName() {
  const query = ['--query-gpu=name,driver_version', '--format=csv,noheader'];
  return execFileSync('nvidia-smi', query, { encoding: 'utf8' }).trim().split('\n')[0];
}
