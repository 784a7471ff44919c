import type { Connection } from './connection.js';
import { retry } from './retry.js';

/** The parts that are asked one thing at a time; the others wait by themselves. */
const ASKED: ReadonlySet<PropertyKey> = new Set([
  'durations',
  'hosts',
  'jobs',
  'leasing',
  'logs',
  'memory',
  'pairs',
  'recommendations',
  'sweeps',
  'usage',
]);

/** The store for who follows something: where Redis answers with an error, each call waits as in an outage, unless only somebody can mend it. `from`: before that it fails at once. */
export function patient<S extends { connection: Pick<Connection, 'onRefused'> }>(
  store: S,
  signal: AbortSignal,
  from: () => boolean = () => true,
): S {
  const ask = <T>(call: () => Promise<T>): Promise<T> =>
    retry(call, { signal, onRefused: store.connection.onRefused, attended: true });
  const patientPart = (part: object): object =>
    new Proxy(part, {
      get(target, name) {
        const value = Reflect.get(target, name);
        if (typeof value !== 'function') return value;
        return (...args: unknown[]) => {
          const first: unknown = value.apply(target, args);
          if (!(first instanceof Promise) || !from()) return first;
          let made: Promise<unknown> | null = first;
          return ask(() => {
            const now = made ?? value.apply(target, args);
            made = null;
            return now;
          });
        };
      },
    });
  return new Proxy(store, {
    get(target, name) {
      const part: unknown = Reflect.get(target, name);
      return ASKED.has(name) && typeof part === 'object' && part !== null ? patientPart(part) : part;
    },
  });
}
