/** The client of Redis waits through an outage, but who asks over HTTP wants to be told. Rejects after `ms`. */
export async function within<T>(promise: Promise<T>, ms: number): Promise<T> {
  promise.catch(() => {}); // it may fail when nobody waits any more
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Late(`No answer within ${ms / 1000} s.`)), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

export class Late extends Error {}
