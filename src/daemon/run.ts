import { OomtuneError } from '../common/errors.js';
import { packageVersion, stateFolder } from '../common/home.js';
import { createLog } from '../common/log.js';
import { logUsually } from '../common/log-level.js';
import { aborted } from '../common/within.js';
import { lockFile } from '../runtime/folder-lock.js';
import type { Runtime } from '../runtime/types.js';
import { fairShare, hostName, type Store, thisProcess } from '../store/index.js';
import { Daemon } from './daemon.js';
import {
  type DaemonFile,
  lockPath,
  readDaemonFile,
  removeDaemonFile,
  stableToken,
  writeDaemonFile,
} from './daemon-file.js';
import { OwnHands, type WorkerApi } from './hands.js';
import { Housekeeping } from './housekeeping.js';
import type { HttpParts, HttpServer } from './http/index.js';
import { Observer } from './observe/sampler.js';
import { DAEMON_SETTINGS, type DaemonSettings } from './settings.js';
import { System, type SystemSettings } from './system/index.js';

export interface RunOptions extends Partial<DaemonSettings> {
  /** When aborted, the daemon lets go of its jobs and ends. */
  signal: AbortSignal;
  /** Tests pass a stand-in. */
  runtime?: Runtime;
  worker?: WorkerApi;
  /** Serves all users of the machine; absent: whoever runs it. */
  system?: SystemSettings;
}

/** Runs the daemon here until the signal is aborted. Throws OOMTUNE_DAEMON_RUNNING or OOMTUNE_REDIS_UNSAFE. */
export async function runDaemonHere(store: Store, options: RunOptions): Promise<void> {
  const { signal, runtime, worker, system: forAll, ...settings } = options;
  const all: DaemonSettings = { ...DAEMON_SETTINGS, ...settings };
  logUsually('info');
  const log = createLog('daemon');
  const host = hostName();
  await store.checkSafe({ allowInsecure: all.allowInsecureRedis });
  fairShare(); // a file that cannot be used keeps the daemon from starting, and not each lease from being renewed
  const lock = lockFile(lockPath(host));
  if (lock === null) throw alreadyRuns(host);
  const version = packageVersion();
  const file: DaemonFile = {
    schema: 1,
    ...thisProcess(),
    host,
    version,
    redis: store.url,
    started_at: new Date().toISOString(),
    ready: false,
    dashboard: null,
    dashboard_fault: null,
  };
  writeDaemonFile(file);
  store.connection.onOutage = (state, shown, why) => {
    if (state === 'lost')
      log.warn({ redis: shown }, 'Redis does not answer: jobs go on, new ones wait until it is back');
    else if (state === 'refuses')
      log.warn({ redis: shown, why }, 'Redis answers with an error: jobs go on, and it is asked until it does not');
  };
  const ownRuntime = runtime ?? (await import('../runtime/index.js')).createRuntime();
  const system = forAll === undefined ? null : new System({ store, runtime: ownRuntime, log, version }, forAll);
  const machine = system?.runtime ?? ownRuntime;
  const api = worker ?? (await import('../worker/index.js'));
  const own = new OwnHands({ store, runtime: ownRuntime, worker: api, log }, stateFolder('runs'));
  const daemon = new Daemon({
    store,
    runtime: machine,
    handsFor: system === null ? () => own : (job) => system.handsFor(job),
    settings: all,
    token: stableToken(),
    version,
    log,
  });
  const housekeeping = new Housekeeping({ store, log, settings: all, more: async () => system?.tidy() });
  let http: HttpServer | null = null;
  let observer: Observer | null = null;
  try {
    if (process.getuid?.() === 0 && system === null) log.warn('the daemon runs as root, and so do its jobs');
    const failed = daemon.failed;
    failed.catch(() => {});
    await daemon.start();
    const served = await serve({ store, runtime: machine, log, version, steps: (job) => daemon.steps(job) }, all);
    http = served.http;
    // Memory is sampled without a dashboard as well, for `explain`
    if (http === null) observer = new Observer(store, machine, log);
    await observer?.start();
    await system?.listen();
    writeDaemonFile({ ...file, ready: true, dashboard: http?.url ?? null, dashboard_fault: served.fault });
    await Promise.race([aborted(signal), failed]);
  } finally {
    housekeeping.close();
    await system?.close();
    await http?.close().catch((error: unknown) => log.debug({ err: error }, 'the dashboard did not close'));
    await observer?.close();
    await daemon.stop({ kill: daemon.killAsked });
    await system?.end();
    removeDaemonFile(host);
    lock.release();
  }
}

/** Starts the dashboard; null, with a note, where it is off or fails: jobs do not need it. */
async function serve(
  parts: Pick<HttpParts, 'store' | 'runtime' | 'log' | 'version' | 'steps'>,
  { httpPort, httpHost, metricsOpen }: DaemonSettings,
): Promise<{ http: HttpServer | null; fault: string | null }> {
  if (httpPort === 0) return { http: null, fault: null };
  try {
    const { startHttp } = await import('./http/index.js');
    const http = await startHttp({ ...parts, host: httpHost, port: httpPort, metricsOpen });
    parts.log.info({ url: http.url }, 'the dashboard is served');
    return { http, fault: null };
  } catch (error) {
    parts.log.warn({ err: error, host: httpHost, port: httpPort }, 'there is no dashboard: its port cannot be had');
    return { http: null, fault: (error as Error).message };
  }
}

function alreadyRuns(host: string): OomtuneError {
  const pid = readDaemonFile(host)?.pid;
  return new OomtuneError(
    'OOMTUNE_DAEMON_RUNNING',
    `A daemon already runs on ${host}${pid === undefined ? '' : `, pid ${pid}`}.`,
    '`oomtune daemon status` shows it; `oomtune daemon stop` stops it and leaves its jobs alone.',
  );
}
