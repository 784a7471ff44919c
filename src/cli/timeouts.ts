import { longestEndMs } from '../common/bounds.js';
import { OomtuneError } from '../common/errors.js';
import { TimeUp, unlessAborted, within } from '../common/within.js';
import type { Context } from './context.js';
import type { Invocation } from './verb.js';

/** Verbs that end what they run when they are interrupted. */
const ENDS_FIRST = ['run', 'find-batch', 'estimate', 'daemon run'];
/** For other verbs to end by themselves. */
const INTERRUPTED_MS = 1000;
/** Verbs that only talk to Redis, which may not answer. */
const ONLY_ASKS = [
  'status',
  'cancel',
  'hold',
  'release',
  'retry',
  'submit',
  'explain',
  'recommend',
  'manifest',
  'devices',
];
const LONGEST_ASK_MS = 60_000;

/** Bounds a verb that waits for Redis. Throws OOMTUNE_STILL_RUNNING or OOMTUNE_REDIS_UNREACHABLE. */
export async function withTimeout(
  { verb, options }: Invocation,
  { signal, patience, redisUrl }: Context,
  work: () => Promise<number>,
): Promise<number> {
  if (ENDS_FIRST.includes(verb)) {
    // What it runs is ended first, but the kernel may hold on to it. A daemon that ends its jobs has as long as whoever told it
    // to waits for it.
    if (signal.aborted) return work();
    const ms = verb === 'daemon run' ? 2 * longestEndMs() : longestEndMs();
    return unlessAborted(verb === 'run' ? patience : signal, work, ms, () => stillRunning(ms));
  }
  if (!ONLY_ASKS.includes(verb) || options.watch) return unlessAborted(signal, work, INTERRUPTED_MS);
  try {
    return await within(LONGEST_ASK_MS, signal, work);
  } catch (error) {
    throw error instanceof TimeUp ? noAnswer(redisUrl, error) : error;
  }
}

function stillRunning(ms: number): OomtuneError {
  return new OomtuneError(
    'OOMTUNE_STILL_RUNNING',
    `Something of the command still runs ${ms / 1000} s after it was told to end: the kernel has not let go of it.`,
    'A file system or a GPU that does not answer is the usual reason. Its devices stay reserved until it is gone.',
  );
}

/** The error says that the request was sent, so that Redis may still act on it. */
function noAnswer(url: string | null, cause: Error): OomtuneError {
  const which = url === null ? 'The embedded Redis' : 'Redis';
  return new OomtuneError(
    'OOMTUNE_REDIS_UNREACHABLE',
    `${which} did not answer within ${LONGEST_ASK_MS / 1000} s: it is not known whether it did what it was told.`,
    'Look with `oomtune status` when it answers again, and repeat it if need be.',
    { cause },
  );
}
