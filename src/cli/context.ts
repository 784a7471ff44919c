import { processLives, readStat } from '../common/process.js';
import type { Runtime } from '../runtime/types.js';
import type { Store } from '../store/index.js';
import { parseRedisUrl } from '../store/url.js';
import { Interruption } from './interruption.js';
import type { Output } from './output.js';
import { createProgress, type ProgressView } from './progress.js';
import type { Hello } from './system/client.js';
import { systemDaemon } from './system/client.js';

/** What verbs share. Expensive parts are made when first asked for, and closed at the end. */
export interface Context {
  readonly out: Output;
  /** Aborted by SIGINT, SIGTERM and SIGHUP (not under nohup), and by the end of the process that OOMTUNE_CALLER names. */
  readonly signal: AbortSignal;
  /** Aborted when a job that Ctrl-C has reached is not to save any more; with any other signal at once. */
  readonly patience: AbortSignal;
  /** 128 + the number of the signal that interrupted; null when none did. */
  readonly interruptedBy: number | null;
  readonly progress: ProgressView;
  /** URL given by `--redis` or OOMTUNE_REDIS_URL; null: the embedded Redis. */
  readonly redisUrl: string | null;
  /** What the machine's daemon says of itself and this user, where the verb goes through it; else null. */
  system(): Promise<Hello | null>;
  store(): Promise<Store>;
  runtime(): Promise<Runtime>;
  /** What a verb leaves to be done after it, when its own time limit no longer counts: a question may wait for its answer. */
  readonly afterwards: (() => Promise<void>)[];
  close(): Promise<void>;
}

/** Between two looks at the caller. */
const LOOK_MS = 500;

/** Verbs for which the daemon of the machine stands in the place of a Redis of one's own. */
const BY_SYSTEM = new Set([
  ...[
    'find-batch',
    'run',
    'submit',
    'status',
    'top',
    'wait',
    'logs',
    'cancel',
    'retry',
    'hold',
    'release',
    'pause',
    'resume',
  ],
  ...['edit', 'explain', 'recommend', 'manifest', 'devices', '__complete', 'daemon status', 'doctor'],
]);

export function createContext(out: Output, options: Record<string, unknown>, verb = ''): Context {
  const redisUrl = String(options.redis ?? process.env.OOMTUNE_REDIS_URL ?? '') || null;
  if (redisUrl !== null) parseRedisUrl(redisUrl); // throws for a wrong one before anything is tried
  const socket = BY_SYSTEM.has(verb) ? systemDaemon(redisUrl) : null;
  let system: Promise<{ hello: Hello; store: Store }> | null = null;
  let store: Promise<Store> | null = null;
  let runtime: Promise<Runtime> | null = null;
  let progress: ProgressView | null = null;

  const interruption = new Interruption(out);
  const stopWatching = onCallersEnd(() => interruption.heard('SIGHUP')); // as if a terminal went away

  return {
    out,
    signal: interruption.signal,
    patience: interruption.patience,
    redisUrl,
    afterwards: [],
    get interruptedBy() {
      return interruption.exitCode;
    },
    get progress() {
      progress ??= createProgress(process.stderr);
      return progress;
    },
    async system() {
      if (socket === null) return null;
      system ??= joinSystem(socket);
      return (await system).hello;
    },
    store() {
      if (socket !== null) {
        system ??= joinSystem(socket);
        return system.then((joined) => joined.store);
      }
      store ??= import('../store/index.js').then(({ openStore }) =>
        openStore({ url: redisUrl, signal: interruption.signal }),
      );
      return store;
    },
    runtime() {
      runtime ??= import('../runtime/index.js').then(({ createRuntime }) => createRuntime());
      return runtime;
    },
    async close() {
      progress?.close();
      stopWatching();
      interruption.close();
      const opened = await store?.catch(() => null);
      await opened?.close();
      await system?.then((joined) => joined.store.close()).catch(() => {});
    },
  };
}

/**
 * Calls `gone` once, when the process that OOMTUNE_CALLER names has ended: the Python package starts us in a session of our own,
 * so that no signal for a notebook's kernel reaches us, and a killed kernel tells nobody. Returns what ends the watch.
 */
function onCallersEnd(gone: () => void): () => void {
  const pid = Number(process.env.OOMTUNE_CALLER);
  delete process.env.OOMTUNE_CALLER; // what we start is to end with us
  if (!Number.isInteger(pid) || pid <= 0) return () => {};
  const startTime = readStat(pid)?.startTime ?? -1;
  const timer = setInterval(() => {
    if (processLives(pid, startTime)) return;
    clearInterval(timer);
    gone();
  }, LOOK_MS);
  timer.unref();
  return () => clearInterval(timer);
}

/** From here on this process keeps its files where the machine's daemon says. */
async function joinSystem(path: string): Promise<{ hello: Hello; store: Store }> {
  const [{ connectSystem }, { systemStore }, { useHome }] = await Promise.all([
    import('./system/client.js'),
    import('./system/store.js'),
    import('../common/home.js'),
  ]);
  const { channel, hello } = await connectSystem(path);
  useHome(hello.home);
  return { hello, store: systemStore(path, channel) };
}
