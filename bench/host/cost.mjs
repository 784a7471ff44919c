// What the host preload costs: `node bench/host/cost.mjs [PYTHON] > bench/results/host-cost.json`. Rounds with and
// without it alternate; the figures are medians over the rounds.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { cpus, release, tmpdir } from 'node:os';
import { join } from 'node:path';
import { createRuntime } from '../../dist/runtime/index.js';

const ROUNDS = 7;
const python = process.argv[2] ?? '/usr/bin/python3';
const script = join(import.meta.dirname, 'allocations.py');
const root = mkdtempSync(join(tmpdir(), 'oomtune-bench-'));
const env = { PATH: process.env.PATH, OMP_NUM_THREADS: '1' };
const runtime = createRuntime();

async function under(round) {
  const run = await runtime.launch({
    jobId: 'bench',
    launch: 1,
    argv: [python, script],
    cwd: root,
    env,
    dir: join(root, String(round)),
    devices: ['cpu'],
    budgetBytes: 1024 ** 3,
    timeoutSeconds: null,
    graceSeconds: 5,
    output: 'log',
  });
  await run.wait();
  return JSON.parse(readFileSync(run.logFile, 'utf8'));
}

const bare = () => JSON.parse(execFileSync(python, [script], { env, cwd: root, encoding: 'utf8' }));
const median = (values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)];
const results = { bare: [], under: [] };
for (let round = 0; round < ROUNDS; round += 1) {
  results.bare.push(bare());
  results.under.push(await under(round));
}
rmSync(root, { recursive: true });
const figures = (runs) =>
  Object.fromEntries(
    ['pair_64B_ns', 'pair_64KiB_ns', 'step_ms'].map((name) => [
      name,
      Number(median(runs.map((run) => run[name])).toFixed(3)),
    ]),
  );
console.log(
  JSON.stringify(
    {
      command: 'node bench/host/cost.mjs',
      rounds: ROUNDS,
      bare: figures(results.bare),
      with_runtime: figures(results.under),
      torch: results.bare[0].torch,
      runtime: runtime.versions().addon,
      cpu: cpus()[0].model,
      kernel: release(),
      node: process.version,
    },
    null,
    2,
  ),
);
