#!/usr/bin/env node
/**
 * Measures what a user waits for: `oomtune --help`, and `oomtune status` with Redis up and some jobs in it.
 * node bench/cli/startup.mjs [--runs N] [--record]   (--record writes bench/results/cli-startup.json)
 */
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const OOMTUNE = join(ROOT, 'bin', 'oomtune.js');
const at = process.argv.indexOf('--runs');
const RUNS = at < 0 ? 20 : Number(process.argv[at + 1]);
const JOBS = 50;

const home = mkdtempSync(join(tmpdir(), 'oomtune-bench-'));
const env = { ...process.env, OOMTUNE_HOME: home };
const call = (...args) => {
  const started = process.hrtime.bigint();
  const done = spawnSync(process.execPath, [OOMTUNE, ...args], { env, encoding: 'utf8' });
  if (done.status !== 0) throw new Error(`oomtune ${args.join(' ')}: ${done.stderr}`);
  return Number(process.hrtime.bigint() - started) / 1e6;
};

function measure(...args) {
  call(...args); // the first fills the page cache
  const times = Array.from({ length: RUNS }, () => call(...args)).sort((a, b) => a - b);
  return { median_ms: Math.round(times[Math.floor(RUNS / 2)]), p90_ms: Math.round(times[Math.floor(RUNS * 0.9)]) };
}

try {
  for (let job = 0; job < JOBS; job += 1) call('submit', '--device', 'cpu', '--', 'true');
  const results = {
    command: `node bench/cli/startup.mjs --runs ${RUNS}`,
    oomtune: JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')).version,
    node: process.versions.node,
    cpu: `${cpus().length} x ${cpus()[0].model}`,
    jobs_in_redis: JOBS,
    help: { ...measure('--help'), target_ms: 200 },
    status: { ...measure('status'), target_ms: 400 },
    status_json: measure('status', '--json'),
  };
  process.stdout.write(`${JSON.stringify(results, null, 2)}\n`);
  if (process.argv.includes('--record')) {
    mkdirSync(join(ROOT, 'bench', 'results'), { recursive: true });
    writeFileSync(join(ROOT, 'bench', 'results', 'cli-startup.json'), `${JSON.stringify(results, null, 2)}\n`);
  }
} finally {
  spawnSync(process.execPath, [OOMTUNE, 'redis', 'stop'], { env });
  rmSync(home, { recursive: true, force: true });
}
