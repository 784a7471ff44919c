/** A time that was set for something is up. */
export class TimeUp extends Error {
  constructor(ms: number) {
    super(`It took longer than ${Math.round(ms / 1000)} s.`);
    this.name = 'TimeUp';
  }
}

/**
 * What `work` comes to, unless the signal is aborted (then its reason is thrown) or the time is up (TimeUp) before: for work that
 * nobody can break off, as a request to a server that does not answer. `work` is told by its own signal, which is held by a timer
 * and by this call: one made by AbortSignal.any() is collected as garbage while only a listener waits for it, and never aborts.
 */
export async function within<T>(
  ms: number,
  outer: AbortSignal | null,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const controller = new AbortController();
  const onOuter = (): void => controller.abort(outer?.reason);
  const timer = setTimeout(() => controller.abort(new TimeUp(ms)), ms);
  outer?.addEventListener('abort', onOuter, { once: true });
  if (outer?.aborted) onOuter();
  try {
    return await unlessAborted(controller.signal, () => work(controller.signal));
  } finally {
    clearTimeout(timer);
    outer?.removeEventListener('abort', onOuter);
  }
}

/** Waits for it, but not for ever. */
export async function soon(work: Promise<unknown>, ms = 1000): Promise<void> {
  await within(ms, null, () => work).catch((error: unknown) => {
    if (!(error instanceof TimeUp)) throw error;
  });
}

/** Resolves when the signal is aborted. */
export function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

/** What `work` comes to, or `reason` (the signal's) where it has come to nothing `graceMs` after an abort. */
export async function unlessAborted<T>(
  signal: AbortSignal,
  work: () => Promise<T>,
  graceMs = 0,
  reason: () => unknown = () => signal.reason,
): Promise<T> {
  signal.throwIfAborted();
  let timer: NodeJS.Timeout | undefined;
  let onAbort: () => void = () => {};
  const late = new Promise<never>((_, reject) => {
    onAbort = () => {
      if (graceMs === 0) reject(reason());
      else timer = setTimeout(() => reject(reason()), graceMs);
    };
    signal.addEventListener('abort', onAbort, { once: true });
  });
  late.catch(() => {});
  try {
    const begun = work();
    begun.catch(() => {}); // nobody may be left to hear of it
    return await Promise.race([late, begun]);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', onAbort);
  }
}

/** A sleep that can be cut short. */
export class Alarm {
  /** Ends the sleep, if there is one. */
  ring: () => void = () => {};

  /** Resolves after `ms`, when it rings, or when the signal is aborted. */
  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.ring = () => {
        clearTimeout(timer);
        resolve();
      };
      signal?.addEventListener('abort', this.ring, { once: true });
      if (signal?.aborted) this.ring();
    });
    signal?.removeEventListener('abort', this.ring);
  }
}
