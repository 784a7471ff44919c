import PQueue from 'p-queue';
import { OomtuneError, usageError } from '../../common/errors.js';
import { ToldLately } from '../../common/told-lately.js';
import type { JobRecord, SubmittedEnvironment } from '../../contract/job.js';
import type { Recommendation } from '../../contract/recommendation.js';
import { type Channel, ChannelClosed } from '../../daemon/system/channel.js';
import type { Store, StoredJob } from '../../store/index.js';
import type { LeaseRequest } from '../../store/lease-request.js';
import { newStep } from '../../store/step.js';
import { down } from './client.js';
import { Line } from './line.js';

/** Calls by part of the store, as the daemon offers them. */
const OFFERED = {
  jobs: [
    'get',
    'find',
    'labels',
    'latest',
    'list',
    'live',
    'liveIds',
    'counts',
    'unreadable',
    'cancel',
    'hold',
    'release',
    'pause',
    'edit',
    'environments',
  ],
  recommendations: ['list', 'find', 'knobs'],
  hosts: ['list'],
  leasing: ['list', 'foreground', 'heldByEnded'],
  memory: ['get'],
} as const;

/** Calls at a time: the daemon cuts off who asks for more than 64 on one connection, and some wait for long beside these. */
const MOST_CALLS = 32;

/** The store as verbs use it, behind the socket of the machine's daemon, which shows and does what this user may. */
export function systemStore(path: string, channel: Channel): Store {
  const line = new Line(path, channel);
  const onRefused = refusals();
  const calls = new PQueue({ concurrency: MOST_CALLS });
  const repeat = <T>(ask: (now: Channel) => Promise<T>): Promise<T> => calls.add(() => line.repeat(ask));
  /** What may be asked for again: foreground commands do long after they began. */
  const again = <T>(name: string, args: unknown[]): Promise<T> => repeat((now) => now.call<T>(name, args));
  const call = <T>(name: string, args: unknown[]): Promise<T> =>
    calls
      .add(() => line.channel.call<T>(name, args))
      .catch((error: unknown) => {
        throw error instanceof ChannelClosed ? down(path, error) : error;
      });
  const parts = Object.fromEntries(
    Object.entries(OFFERED).map(([part, names]) => [
      part,
      Object.fromEntries(names.map((name) => [name, (...args: unknown[]) => call(`${part}.${name}`, args)])),
    ]),
  ) as Record<keyof typeof OFFERED, Record<string, unknown>>;
  const store = {
    ...parts,
    url: `unix://${path}`,
    secretUrl: null,
    keys: { prefix: '' },
    connection: { onRefused },
    jobs: guarded('jobs', {
      ...parts.jobs,
      create: (record: JobRecord) => repeat(creating(record)), // what may wait is the daemon's to say
      retry: (id: string, environment: SubmittedEnvironment | null) =>
        again('jobs.retry', [id, environment, newStep()]).catch((error: unknown) => {
          if (isUnread(error, 'jobs.retry')) return call('jobs.retry', [id, environment]); // a daemon of before an upgrade, which knows no steps
          throw error;
        }),
      byOwner: async () => new Map(await call<[string, { waiting: number; working: number }][]>('jobs.byOwner', [])),
      inSlurm: async () => false, // it runs all of its jobs by itself
    }),
    usage: { list: async () => new Map(await call<[string, number][]>('usage.list', [])) },
    leasing: guarded('leasing', {
      ...parts.leasing,
      acquire: (request: LeaseRequest) => line.acquire(request),
      reap: async () => [], // the daemon does
      forgetHost: async () => [],
      onRefused: () => {},
    }),
    recommendations: guarded('recommendations', {
      ...parts.recommendations,
      get: (key: string) => again('recommendations.get', [key]),
      demote: (key: string, knownBad: number) => again('recommendations.demote', [key, knownBad]),
      async put(found: Recommendation) {
        const kept = await again<string | null>('recommendations.put', [found]);
        if (kept !== null) process.stderr.write(`note: ${found.key} was recorded by ${kept}, and is kept\n`);
      },
    }),
    logs: {
      read: async (job: string) =>
        (await call<{ data: string }[]>('logs.read', [job])).map((piece) => ({
          ...piece,
          data: Buffer.from(piece.data, 'base64'),
        })),
    },
    refusalOfWrites: () =>
      call<string | null>('refusalOfWrites', []).catch((error: unknown) => {
        if (error instanceof OomtuneError && error.code === 'OOMTUNE_USAGE') return null; // a daemon of before an upgrade, which knows no such call
        throw error;
      }),
    events: wakes(line),
    close: async () => line.channel.close(),
  };
  return guarded('store', store) as unknown as Store;
}

/** Whether the daemon did nothing, as it takes other arguments than these. */
const isUnread = (error: unknown, name: string): boolean =>
  error instanceof OomtuneError &&
  error.code === 'OOMTUNE_USAGE' &&
  error.message.startsWith(`The daemon cannot read ${name}: arguments:`);

/** Asked again, the daemon may refuse the record because it has it already: the answer to the first time was lost. */
function creating(record: JobRecord): (now: Channel) => Promise<void> {
  let isSent = false;
  return async (now) => {
    const mayBeThere = isSent;
    isSent = true;
    await now.call<null>('jobs.create', [record]).catch(async (error: unknown) => {
      if (!mayBeThere || (await now.call<StoredJob | null>('jobs.get', [record.job])) === null) throw error;
    });
  };
}

/** Tells what Redis answers the daemon with and somebody here waits out, once for all who ask. */
function refusals(): (error: Error) => void {
  const told = new ToldLately();
  return ({ message }) => {
    if (!told.isDue(message)) return;
    const waits = 'What is to be read or written there waits; a running job goes on.';
    process.stderr.write(`oomtune: the daemon of this machine says: ${message} ${waits}\n`);
  };
}

type Listener = (what: string, job: string) => void;

/** All who listen on one connection share one call: `cancel` of many jobs listens for each. */
function wakes(line: Line) {
  const listeners = new Set<Listener>();
  const begun = new WeakMap<Channel, Promise<void>>();
  const begin = (channel: Channel): Promise<void> =>
    new Promise((resolve, reject) => {
      const onNote = (said: unknown): void => {
        const [what, job] = said as [string, string];
        if (what === 'ready') resolve();
        else for (const listener of listeners) listener(what, job);
      };
      channel.call('events.listen', [], { onNote }).catch(reject);
    });
  return {
    async listen(listener: Listener): Promise<() => void> {
      const { channel } = line;
      const ready = begun.get(channel) ?? begin(channel);
      begun.set(channel, ready);
      listeners.add(listener);
      await ready;
      return () => listeners.delete(listener);
    },
  };
}

/** Says by name what the daemon does not offer. */
function guarded<T extends object>(name: string, part: T): T {
  return new Proxy(part, {
    get(target, key) {
      if (typeof key !== 'string' || key in target || key === 'then') return Reflect.get(target, key);
      throw usageError(
        `This needs ${name}.${key}, which the daemon of this machine does not offer.`,
        'Set OOMTUNE_HOME to a folder of yours to work with a daemon and a Redis of your own.',
      );
    },
  });
}
