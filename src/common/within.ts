export class TimeUp extends Error {
  constructor(ms: number) {
    super(`It took longer than ${Math.round(ms / 1000)} s.`);
    this.name = 'TimeUp';
  }
}

/**
 * The result of `work`, or throws the signal's reason or TimeUp, whichever comes first. `work` gets a signal of its own, which
 * a timer refers to: a signal of AbortSignal.any() that only a listener refers to is collected as garbage and never aborts.
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

/** Waits for it, but at most `ms`. */
export async function waitAtMost(work: Promise<unknown>, ms = 1000): Promise<void> {
  await within(ms, null, () => work).catch((error: unknown) => {
    if (!(error instanceof TimeUp)) throw error;
  });
}

export function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

/** The result of `work`, or the signal's `reason` if there is none `graceMs` after an abort. */
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
