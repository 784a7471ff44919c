#!/usr/bin/env node
/**
 * Compares `oomtune find-batch` on the CPU device with a bisection that takes a fresh process for each size.
 * node bench/search/cpu.mjs [--only NAME] [--exactly NAME,NAME] [--budget MIB,MIB] [--python PATH] [--record] [--keep]
 * --record writes bench/results/search-cpu.jsonl and search-cpu.md; with --keep rows of an earlier record that this run
 * does not measure stay. Needs `npm run build`, redis-server and torch.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { costOf, findBatch, interpreter, option, ROOT, stopRedis } from './oomtune.mjs';
import { record, recorded, summary } from './report.mjs';
import { bisect, trial } from './trial.mjs';

const MIB = 1024 ** 2;
const STEPS = 3;
const python = option('--python') ?? interpreter();
const only = option('--only');
const exactly = option('--exactly')?.split(',');
const budgetsWanted = option('--budget')?.split(',').map(Number);
const example = (file, ...args) => [python, join(ROOT, 'examples', file), ...args];
const WORKLOADS = [
  { name: 'mlp', command: example('mlp.py'), budgets: [60, 150, 300] },
  { name: 'transformer', command: example('transformer.py'), budgets: [100, 150, 300] },
  {
    name: 'transformer (accumulation 4)',
    command: example('transformer.py', '--accumulation', '4'),
    accumulation: 4,
    budgets: [100, 150, 300],
  },
  {
    name: 'transformer (checkpointing)',
    command: example('transformer.py', '--checkpointing'),
    budgets: [100, 150, 300],
  },
  { name: 'transformer (bf16)', command: example('transformer.py', '--amp', 'bf16'), budgets: [100, 150, 300] },
  { name: 'convnet', command: example('convnet.py'), budgets: [100, 200, 400] },
]
  .filter(({ name }) => (only === undefined || name.includes(only)) && (exactly?.includes(name) ?? true))
  .map((workload) => ({
    ...workload,
    budgets: workload.budgets.filter((mib) => budgetsWanted?.includes(mib) ?? true),
  }));

if (process.argv.includes('--help')) {
  process.stdout.write(
    `Workloads: ${WORKLOADS.map(({ name, budgets }) => `${name} at ${budgets.join(', ')} MiB`).join('; ')}\n`,
  );
  process.exit(0);
}

const words = process.argv.slice(2).filter((word) => word !== '--record');
const command = ['node bench/search/cpu.mjs', ...words].join(' ');
const write = () => {
  const text = summary('Search on the CPU device', command, python, rows);
  if (process.argv.includes('--record')) record('search-cpu', rows, text);
  return text;
};

const home = mkdtempSync(join(tmpdir(), 'oomtune-bench-'));
const measured = (row) =>
  WORKLOADS.some(({ name, budgets }) => name === row.workload && budgets.includes(Number.parseInt(row.budget, 10)));
const rows = process.argv.includes('--keep') ? recorded('search-cpu').filter((row) => !measured(row)) : [];
try {
  for (const workload of WORKLOADS) {
    for (const budget of workload.budgets) {
      const options = { device: 'cpu', budgetBytes: budget * MIB, steps: STEPS };
      // The yardstick of a start: the script as it stands, to its third optimizer step, the best of three.
      const bare = [];
      for (let n = 0; n < 3; n += 1) bare.push(await trial(workload, null, options));
      const [load] = loadavg();
      const start = bare.sort((a, b) => a.seconds - b.seconds)[0];
      const found = await findBatch(workload, { home, device: 'cpu', budget: `${budget}MiB`, steps: STEPS });
      const truth = await bisect(workload, options, (one) => process.stderr.write(one.fit ? '.' : 'x'));
      const answer = found.max_micro_batch;
      const again = answer === null ? null : await trial(workload, answer, { ...options, steps: 20 });
      const row = {
        workload: workload.name,
        budget: `${budget} MiB`,
        load,
        status: found.status,
        max_micro_batch: answer,
        config: found.config?.micro_batch ?? null,
        truth: truth.size,
        share: truth.size === 0 ? 1 : (answer ?? 0) / truth.size,
        ...costOf(found, start.seconds),
        bisection_attempts: truth.attempts,
        bisection_s: truth.seconds,
        holds_20_steps: again?.fit ?? null,
        report: found,
      };
      rows.push(row);
      write();
      process.stderr.write(
        `\n${row.workload}, ${row.budget}: ${answer} of ${truth.size}, ${row.launches} launches, ${row.search_s.toFixed(1)} s ` +
          `(${row.wall_per_bare.toFixed(2)} bare starts); bisection ${truth.attempts} launches, ${truth.seconds.toFixed(1)} s\n`,
      );
    }
  }
} finally {
  stopRedis(home);
  rmSync(home, { recursive: true, force: true });
}
process.stdout.write(write());
