import type { Runtime } from '../runtime/types.js';
import type { Store } from '../store/index.js';
import { parseRedisUrl } from '../store/url.js';
import type { Output } from './output.js';
import { createProgress, type ProgressView } from './progress.js';

/** What verbs share. Expensive parts are made when first asked for, and closed at the end. */
export interface Context {
  readonly out: Output;
  /** Aborted by SIGINT, SIGTERM and SIGHUP. */
  readonly signal: AbortSignal;
  /** 128 + the number of the signal that interrupted; null when none did. */
  readonly interruptedBy: number | null;
  readonly progress: ProgressView;
  /** URL given by `--redis` or OOMTUNE_REDIS_URL; null: the embedded Redis. */
  readonly redisUrl: string | null;
  store(): Promise<Store>;
  runtime(): Promise<Runtime>;
  close(): Promise<void>;
}

const SIGNALS = { SIGINT: 130, SIGTERM: 143, SIGHUP: 129 } as const;

export function createContext(out: Output, options: Record<string, unknown>): Context {
  const redisUrl = String(options.redis ?? process.env.OOMTUNE_REDIS_URL ?? '') || null;
  if (redisUrl !== null) parseRedisUrl(redisUrl); // throws for a wrong one before anything is tried
  const controller = new AbortController();
  let interruptedBy: number | null = null;
  let times = 0;
  let store: Promise<Store> | null = null;
  let runtime: Promise<Runtime> | null = null;
  let progress: ProgressView | null = null;

  const onSignal = (name: NodeJS.Signals) => {
    times += 1;
    interruptedBy ??= SIGNALS[name as keyof typeof SIGNALS];
    if (times === 1) controller.abort(new DOMException(`Interrupted by ${name}.`, 'AbortError'));
    else if (times === 2) out.note('oomtune: still ending what runs; once more to leave at once.');
    else process.exit(interruptedBy);
  };
  for (const name of Object.keys(SIGNALS)) process.on(name, onSignal);

  return {
    out,
    signal: controller.signal,
    redisUrl,
    get interruptedBy() {
      return interruptedBy;
    },
    get progress() {
      progress ??= createProgress(process.stderr);
      return progress;
    },
    store() {
      store ??= import('../store/index.js').then(({ openStore }) => openStore({ url: redisUrl }));
      return store;
    },
    runtime() {
      runtime ??= import('../runtime/index.js').then(({ createRuntime }) => createRuntime());
      return runtime;
    },
    async close() {
      progress?.close();
      for (const name of Object.keys(SIGNALS)) process.off(name, onSignal);
      const opened = await store?.catch(() => null);
      await opened?.close();
    },
  };
}
