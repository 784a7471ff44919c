import { setTimeout as delay } from 'node:timers/promises';

/** How often it is tried again (ms): at once after a moment, then more slowly. */
const AGAIN_MS = [100, 250, 500, 1000];

/**
 * Redis answered, but with an error (it is busy, full, loading, read-only, does not allow it or asks for another
 * password), or the connection went in the middle of a transaction. Neither says anything about what was asked.
 */
export function isRefusal(error: unknown): error is Error {
  if (!(error instanceof Error)) return false;
  if (error.name === 'ReplyError') return true;
  return error.name === 'AbortError' && !('code' in error); // with a code it is the reason of an AbortController
}

interface OutlastOptions {
  signal?: AbortSignal;
  onRefused?: (error: Error) => void;
  /** The process may end while it is tried. */
  idle?: boolean;
}

/**
 * Tries until Redis takes it, as what must be written is not lost because Redis would not take it just now. `onRefused` is
 * told of each other refusal once. Rejects with other errors, and with the signal's reason.
 */
export async function outlast<T>(
  task: () => Promise<T>,
  { signal, onRefused = () => {}, idle = false }: OutlastOptions = {},
): Promise<T> {
  let last = '';
  for (let tries = 0; ; tries += 1) {
    try {
      return await task();
    } catch (error) {
      if (!isRefusal(error)) throw error;
      if (error.message !== last) onRefused(error);
      last = error.message;
    }
    await delay(AGAIN_MS[Math.min(tries, AGAIN_MS.length - 1)], undefined, { signal, ref: !idle }).catch(() => {
      throw signal?.reason;
    });
  }
}
