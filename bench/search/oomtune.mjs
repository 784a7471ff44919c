import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const OOMTUNE = join(ROOT, 'bin', 'oomtune.js');

/** The value of a flag of the benchmark's own; undefined: not given. */
export function option(flag) {
  const at = process.argv.indexOf(flag);
  return at < 0 ? undefined : process.argv[at + 1];
}

/** The first interpreter that has torch. */
export function interpreter() {
  for (const path of ['/usr/bin/python3', 'python3', 'python']) {
    if (spawnSync(path, ['-c', 'import torch']).status === 0) return path;
  }
  throw new Error('no interpreter with torch: name one with --python');
}

const versions = new Map();

export function torchVersion(python) {
  if (!versions.has(python)) {
    const done = spawnSync(python, ['-c', 'import torch; print(torch.__version__)'], { encoding: 'utf8' });
    versions.set(python, done.stdout.trim());
  }
  return versions.get(python);
}

/**
 * `oomtune find-batch --json` on a workload as it stands. Adds `seconds` (from the start of the command to its end) and
 * `probed_seconds`: what the probes took, each from when it was asked for to its verdict.
 */
export async function findBatch(workload, { home, device, budget, steps, more = [] }) {
  const args = ['find-batch', '--json', '--device', device, '--budget', budget, '--steps', String(steps), ...more];
  const started = performance.now();
  const child = spawn(process.execPath, [OOMTUNE, ...args, '--', ...workload.command], {
    env: { ...process.env, OOMTUNE_HOME: home },
    cwd: workload.cwd ?? process.cwd(),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const ended = once(child, 'close');
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (part) => {
    said += part;
  });
  let output = '';
  for await (const part of child.stdout.setEncoding('utf8')) output += part;
  const [status] = await ended;
  const seconds = (performance.now() - started) / 1000;
  let report;
  try {
    report = JSON.parse(output);
  } catch {
    throw new Error(`find-batch printed no report (exit ${status}): ${said}`);
  }
  if (report.error) throw new Error(`find-batch: ${report.error.message}`);
  return { ...report, seconds, probed_seconds: report.probes.reduce((sum, probe) => sum + probe.wall_s, 0) };
}

/** What a search cost, beside one bare start of the script: launches and seconds, as both benchmarks record them. */
export function costOf(found, bareSeconds) {
  return {
    launches: found.launches,
    oom_launches: found.probes.filter((probe) => probe.outcome === 'device_oom').length,
    probes: found.probes.length,
    search_s: found.seconds,
    bare_s: bareSeconds,
    probed_s: found.probed_seconds,
    wall_per_bare: found.seconds / bareSeconds,
  };
}

export function stopRedis(home) {
  spawnSync(process.execPath, [OOMTUNE, 'redis', 'stop'], { env: { ...process.env, OOMTUNE_HOME: home } });
}
