#!/usr/bin/env node
/**
 * Compares `oomtune find-batch` on one NVIDIA GPU with the finders of accelerate and Lightning and with a fresh process for
 * each size, on the unmodified loops in bench/workloads (batch size 8, hard-coded) under a budget.
 * node bench/search/gpu.mjs [--only resnet50,gpt2] [--amp bf16,off] [--brief off] [--budget 24GiB] [--python PATH]
 *                           [--device cuda:0] [--full] [--no-finders] [--sweep unet] [--together 5] [--record]
 * --full bisects from 1; without it the fresh processes start from find-batch's own answer, which takes fewer of them and finds
 * the same. --brief: precisions of which only the search and the bisection are wanted. --sweep: workloads whose samples/s are
 * measured from 50 % to 100 % of the largest size. Searches and sweeps have the card to themselves; what only asks whether a
 * size fits runs --together N at a time, each under its budget. Needs `npm run build`, redis-server, torch.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import PQueue from 'p-queue';
import { parseSize } from '../../dist/common/size.js';
import { findBatch, option, ROOT, stopRedis } from './oomtune.mjs';
import { gpuSummary, record } from './report.mjs';
import { bisect, finder, speed, trial } from './trial.mjs';

const STEPS = 3;
const python = option('--python') ?? 'python3';
const device = option('--device') ?? 'cuda:0';
const budget = option('--budget') ?? '24GiB';
const names = (option('--only') ?? 'resnet50,vit,gpt2,bert,unet').split(',');
const amps = (option('--amp') ?? 'bf16,off').split(',');
const brief = (option('--brief') ?? '').split(',');
const sweep = (option('--sweep') ?? '').split(',');
const together = new PQueue({ concurrency: Number(option('--together') ?? 1) });
const flag = (name) => process.argv.includes(name);

const home = mkdtempSync(join(tmpdir(), 'oomtune-bench-'));
const gpu = spawnSync('nvidia-smi', ['--query-gpu=name,driver_version', '--format=csv,noheader'], { encoding: 'utf8' });
const card = `${gpu.stdout?.split('\n')[0]?.replace(', ', ', driver ') ?? 'unknown GPU'}, budget ${budget}`;
const command = `node bench/search/gpu.mjs ${process.argv.slice(2).join(' ')}`.trim();
const rows = [];
const later = [];
const write = () => {
  const text = gpuSummary('Search on one NVIDIA GPU', command, python, card, rows);
  if (flag('--record')) record('search-gpu', rows, text);
  return text;
};
try {
  for (const name of names) {
    for (const amp of amps) {
      const workload = { name, command: [python, join(ROOT, 'bench', 'workloads', `${name}.py`)] };
      const options = { device, budgetBytes: parseSize(budget), steps: STEPS, env: { WORKLOAD_AMP: amp } };
      const bare = await trial(workload, null, options);
      const more = ['--env', `WORKLOAD_AMP=${amp}`, '--amp', 'off']; // the script's own precision, whatever the ladder
      const found = await findBatch(workload, { home, device, budget, steps: STEPS, more });
      const answer = found.max_micro_batch;
      const row = {
        workload: name,
        amp,
        found: answer,
        config: found.config?.micro_batch ?? null,
        truth: null,
        share: null,
        launches: found.launches,
        oom_launches: found.probes.filter((probe) => probe.outcome === 'device_oom').length,
        probes: found.probes.length,
        search_s: found.seconds,
        bare_s: bare.seconds,
        probed_s: found.probed_seconds,
        starts: (found.seconds - found.probed_seconds) / bare.seconds,
        bisection_from: flag('--full') ? null : answer,
        bisection_attempts: null,
        bisection_s: null,
        holds_200_steps: null,
        finders: [],
        sweep: [],
        report: found,
      };
      rows.push(row);
      write();
      if (sweep.includes(name) && answer !== null) await sweepSpeeds(row, workload, options);
      later.push(() => bisectionOf(row, workload, options));
      if (brief.includes(amp)) continue;
      if (answer !== null) later.push(() => holdOf(row, workload, options));
      for (const kind of flag('--no-finders') ? [] : ['accelerate', 'power', 'binsearch']) {
        later.push(async () => row.finders.push(await finder(python, kind, workload, options)));
      }
      process.stderr.write(`${name} ${amp}: ${answer} in ${row.launches} launches, ${row.search_s.toFixed(1)} s\n`);
    }
  }
  await together.addAll(
    later.map((work) => async () => {
      await work();
      write();
    }),
  );
} finally {
  stopRedis(home);
  rmSync(home, { recursive: true, force: true });
}
process.stdout.write(write());

async function sweepSpeeds(row, workload, options) {
  const sizes = [0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1].map((part) => Math.max(1, Math.floor(part * row.found)));
  for (const size of new Set([...sizes, row.config ?? 1])) row.sweep.push(await speed(workload, size, options));
  const best = Math.max(...row.sweep.map((one) => one.samples_per_s));
  row.speed_share = (row.sweep.find((one) => one.size === row.config)?.samples_per_s ?? 0) / best;
}

async function bisectionOf(row, workload, options) {
  const truth = await bisect(workload, { ...options, from: row.bisection_from });
  row.truth = truth.size;
  row.share = truth.size === 0 ? 1 : (row.found ?? 0) / truth.size;
  row.bisection_attempts = truth.attempts;
  row.bisection_s = truth.seconds;
}

async function holdOf(row, workload, options) {
  row.holds_200_steps = (await trial(workload, row.found, { ...options, steps: 200 })).fit;
}
