import { spawn } from 'node:child_process';
import { closeSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { longestEndMs } from '../common/bounds.js';
import { OomtuneError } from '../common/errors.js';
import { homeFolder, PACKAGE_ROOT } from '../common/home.js';
import { createLog } from '../common/log.js';
import { errorDocument } from '../contract/failure.js';
import { readJson } from '../contract/fields.js';
import type { JobRecord } from '../contract/job.js';
import type { DaemonStatus } from '../contract/verbs.js';
import type { Runtime } from '../runtime/types.js';
import { hostName, isAlive, type Store } from '../store/index.js';
import { type DaemonFile, killPath, logPath, readDaemonFile, stableToken } from './daemon-file.js';
import { hostTaken } from './foreign-home.js';
import { JobBackups } from './job-backups.js';
import { rotateLog } from './own-log.js';
import type { DaemonSettings } from './settings.js';
import { decodeError } from './system/channel.js';

export type StartOptions = Partial<
  Pick<DaemonSettings, 'cpuLanes' | 'allowInsecureRedis' | 'httpPort' | 'httpHost' | 'metricsOpen' | 'labels'>
>;

const START_SECONDS = 30;

/** This host's daemon, and the number of jobs. */
export async function daemonStatus(store: Store): Promise<DaemonStatus> {
  const file = readDaemonFile(hostName());
  return {
    running: file !== null,
    pid: file?.pid ?? null,
    host: file?.host ?? hostName(),
    version: file?.version ?? null,
    redis: file?.redis ?? store.url,
    started_at: file?.started_at ?? null,
    dashboard: file?.dashboard ?? null,
    dashboard_fault: file?.dashboard_fault ?? null,
    jobs: (await store.jobs.counts()).live,
    lacks: (await store.hosts.list()).find((one) => one.host === hostName())?.info?.lacks ?? null,
  };
}

/** Whether a daemon of this user's own runs here. */
export const ownDaemonRuns = (): boolean => readDaemonFile(hostName()) !== null;

/** Starts a daemon in its own session; returns when it takes jobs. Throws OOMTUNE_DAEMON_RUNNING, or what its log says. */
export async function startDaemon(store: Store, options: StartOptions = {}): Promise<DaemonStatus> {
  const host = hostName();
  const before = readDaemonFile(host);
  if (before !== null) {
    throw new OomtuneError(
      'OOMTUNE_DAEMON_RUNNING',
      `A daemon already runs on ${host}, pid ${before.pid}.`,
      '`oomtune daemon status` shows it; `oomtune daemon stop` stops it and leaves its jobs alone.',
    );
  }
  const argv = [join(PACKAGE_ROOT, 'bin', 'oomtune.js'), 'daemon', 'run', '--json']; // an error is one line of its log
  if (options.cpuLanes !== undefined) argv.push('--cpu-lanes', String(options.cpuLanes));
  if (options.allowInsecureRedis === true) argv.push('--allow-insecure-redis');
  if (options.httpPort !== undefined) argv.push('--http-port', String(options.httpPort));
  if (options.httpHost !== undefined) argv.push('--http-host', options.httpHost);
  if (options.metricsOpen === true) argv.push('--metrics-open');
  for (const label of options.labels ?? []) argv.push('--label', label);
  const path = logPath();
  const begin = rotateLog(path);
  const log = openSync(path, 'a', 0o600);
  const child = spawn(process.execPath, argv, {
    cwd: homeFolder(),
    detached: true,
    stdio: ['ignore', log, log],
    // Through the environment, as everybody can read a command line
    env: { ...process.env, ...(store.secretUrl === null ? {} : { OOMTUNE_REDIS_URL: store.secretUrl }) },
  });
  closeSync(log);
  child.unref();
  let ended = false;
  for (const event of ['exit', 'error']) {
    child.once(event, () => {
      ended = true;
    });
  }
  for (const deadline = Date.now() + START_SECONDS * 1000; Date.now() < deadline; await delay(25)) {
    const file = readDaemonFile(host);
    if (file !== null && file.pid === child.pid && file.ready) return daemonStatus(store);
    if (ended) throw didNotStart(path, begin);
  }
  if (child.pid !== undefined) process.kill(child.pid, 'SIGTERM');
  throw didNotStart(path, begin);
}

/**
 * Stops the daemon of this host; its jobs go on. `kill` also ends the jobs, those of earlier daemons included, and only that
 * needs the store. False: nothing to stop. Throws OOMTUNE_STILL_RUNNING for jobs that the kernel does not let go.
 */
export async function stopDaemon(
  store: Store | (() => Promise<Store>),
  { kill = false }: { kill?: boolean } = {},
): Promise<boolean> {
  const host = hostName();
  const file = readDaemonFile(host);
  if (file !== null) await end(file, kill);
  const left = kill ? await endLeftJobs(typeof store === 'function' ? await store() : store, host) : 0;
  return file !== null || left > 0;
}

async function end(file: DaemonFile, kill: boolean): Promise<void> {
  if (kill) writeFileSync(killPath(file.host), '', { mode: 0o600 });
  process.kill(file.pid, 'SIGTERM');
  // With `kill` it takes as long as the jobs' grace; else there is no reason to take long
  const deadline = Date.now() + (kill ? 2 * longestEndMs() : 30_000);
  while (isAlive(file)) {
    if (Date.now() > deadline) {
      process.kill(file.pid, 'SIGKILL'); // its jobs do not mind, and the next daemon adopts them
      break;
    }
    await delay(25);
  }
  rmSync(killPath(file.host), { force: true });
}

/** Ends jobs that run under their supervisors without a daemon, also those that Redis lost. */
async function endLeftJobs(store: Store, host: string): Promise<number> {
  const claimed = (await store.jobs.live()).filter((job) => job.claimHost === host && job.claim !== null);
  const taken = hostTaken(claimed, host, stableToken());
  if (taken !== null) throw taken;
  const backups = new JobBackups(store, createLog('daemon'));
  const left = new Map<string, { record: JobRecord; claim: string }>();
  for (const { record, claim } of backups.list(host)) left.set(record.job, { record, claim });
  for (const record of claimed) left.set(record.job, { record, claim: record.claim as string });
  if (left.size === 0) return 0;
  const { createRuntime } = await import('../runtime/index.js');
  const runtime = createRuntime();
  const stuck = await Promise.all(
    [...left].map(async ([job, { record, claim }]) => {
      if (!(await endWithin(runtime, record.launches.at(-1)?.dir, longestEndMs()))) return job;
      await store.jobs.patch(job, { state: 'cancelled', reason: null }, claim);
      backups.remove(job);
      return null;
    }),
  );
  await store.leasing.reap([]);
  const names = stuck.filter((job) => job !== null).join(', ');
  if (names === '') return left.size;
  throw new OomtuneError(
    'OOMTUNE_STILL_RUNNING',
    `Something of ${names} still runs, although it was killed: the kernel has not let go of it.`,
    'A file system or a GPU that does not answer is the usual reason; call this again when it does, or restart the machine.',
  );
}

/** Ends a launch; true if nothing of it is left within this time. */
async function endWithin(runtime: Runtime, dir: string | undefined, ms: number): Promise<boolean> {
  const run = dir === undefined ? null : await runtime.adopt(dir);
  if (run === null) return true;
  run.end('cancel');
  return Promise.race([run.wait().then(({ stuck }) => stuck === undefined), delay(ms, false, { ref: false })]);
}

function didNotStart(path: string, begin: number): OomtuneError {
  const lines = readFileSync(path).subarray(begin).toString('utf8').split('\n');
  const said = lines.map((line) => readJson(errorDocument, line)).findLast((one) => one !== null);
  if (said != null) return decodeError(said.error);
  const words = lines.find((line) => line !== '' && !line.startsWith('{')); // of Node or the system: it did not come so far
  return new OomtuneError('OOMTUNE_DAEMON_DOWN', words ?? 'The daemon did not start.', `See ${path}.`);
}
