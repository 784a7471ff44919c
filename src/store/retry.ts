import { setTimeout as delay } from 'node:timers/promises';
import { OomtuneError } from '../common/errors.js';
import { WRONG_TYPE } from '../common/refusal.js';
import { isWrongType } from './replies.js';

/** Pauses before each new try (ms). */
const AGAIN_MS = [100, 250, 500, 1000];

/** Redis answered with an error (busy, full, loading, read-only, …; to the daemon of the machine, too), or the connection broke in a transaction: try again. */
export function isRefusal(error: unknown): error is Error {
  if (!(error instanceof Error)) return false;
  if (error instanceof OomtuneError) return error.code === 'OOMTUNE_REDIS_REFUSED';
  if (error.name === 'ReplyError') return true;
  return error.name === 'AbortError' && !('code' in error); // with a code it is the reason of an AbortController
}

/** A key of another type waits for somebody to delete it. The daemon of the machine says so in words. */
const saysWrongType = (error: Error): boolean => isWrongType(error as unknown) || error.message.includes(WRONG_TYPE);

interface RetryOptions {
  signal?: AbortSignal;
  onRefused?: (error: Error) => void;
  /** The process may end while it is tried. */
  idle?: boolean;
  /** Refused for so long, it throws the refusal. Absent: there is no end. */
  mostMs?: number;
  /** Somebody waits for it: what no time mends is thrown at once. */
  attended?: boolean;
}

/** Tries until Redis takes it. Calls `onRefused` once for each other refusal. Throws other errors, and the signal's reason. */
export async function retry<T>(
  task: () => Promise<T>,
  {
    signal,
    onRefused = () => {},
    idle = false,
    mostMs = Number.POSITIVE_INFINITY,
    attended = Number.isFinite(mostMs),
  }: RetryOptions = {},
): Promise<T> {
  let last = '';
  let since: number | null = null;
  for (let tries = 0; ; tries += 1) {
    try {
      return await task();
    } catch (error) {
      if (!isRefusal(error) || (attended && saysWrongType(error))) throw error;
      if (error.message !== last) onRefused(error);
      last = error.message;
      since ??= Date.now();
      if (Date.now() - since >= mostMs) throw error;
    }
    await delay(AGAIN_MS[Math.min(tries, AGAIN_MS.length - 1)], undefined, { signal, ref: !idle }).catch(() => {
      throw signal?.reason;
    });
  }
}
