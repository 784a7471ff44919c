import { z } from 'zod';
import { listWish } from '../../contract/system.js';
import { hostName, type Store, type StoredJob } from '../../store/index.js';
import { type Calls, call, handle, id } from './calls.js';
import type { Peer } from './peer.js';
import { checkMaySteer, maySteer, visibleJob, visibleLease } from './visible.js';

export interface AboutDaemon {
  version: string;
  startedAt: string;
  /** The folder of this user's state. */
  homeOf: (peer: Peer) => string;
}

/** The calls that only look. Each shows no more than the caller may see. */
export function readCalls(store: Store, about: AboutDaemon): Calls {
  const { jobs, recommendations, hosts, leasing, memory, logs, events, usage } = store;
  const shown = (peer: Peer, all: StoredJob[]) => all.map((job) => visibleJob(peer, job));
  const get = async (peer: Peer, name: string) => {
    const job = await jobs.get(name);
    return job && visibleJob(peer, job);
  };
  return {
    hello: call([], async ({ peer }) => ({
      version: about.version,
      pid: process.pid,
      host: hostName(),
      started_at: about.startedAt,
      home: about.homeOf(peer),
      user: peer.name,
      uid: peer.uid,
      admin: peer.admin,
      jobs: (await jobs.counts()).live,
      lacks: (await hosts.list()).find((one) => one.host === hostName())?.info?.lacks ?? null,
    })),
    refusalOfWrites: call([], () => store.refusalOfWrites()),
    'jobs.get': call([handle], ({ peer }, [name]) => get(peer, name)),
    'jobs.find': call([handle], async ({ peer }, [name]) => {
      const found = await jobs.find(name);
      return found.is === 'job' ? { is: 'job', job: visibleJob(peer, found.job) } : found;
    }),
    // Names and `@` are handles of one's own jobs; another's job is named by its id
    'jobs.labels': call([], async ({ peer }) => {
      const labels = await jobs.labels();
      const uids = await jobs.fields(
        labels.map(({ job }) => job),
        ['uid'],
      );
      return labels.map((label, at) =>
        uids[at]?.[0] === String(peer.uid) ? label : { job: label.job, name: null, key: null },
      );
    }),
    'jobs.latest': call([], async ({ peer }) => {
      const own = (await jobs.list({ ended: 200 })).filter((job) => job.uid === peer.uid);
      return own.at(-1) ?? null;
    }),
    'jobs.list': call([listWish], async ({ peer }, [how]) => shown(peer, await jobs.list({ ended: how?.ended ?? 20 }))),
    'jobs.live': call([], async ({ peer }) => shown(peer, await jobs.live())),
    'jobs.liveIds': call([], () => jobs.liveIds()),
    'jobs.counts': call([], () => jobs.counts()),
    // How much everybody has is no secret: it is what tells why one's own job waits
    'jobs.byOwner': call([], async () => [...(await jobs.byOwner())]),
    'usage.list': call([], async () => [...(await usage.list())]),
    'jobs.unreadable': call([], async ({ peer }) => (peer.admin ? jobs.unreadable() : [])),
    'recommendations.get': call([z.string().max(512)], (_, [key]) => recommendations.get(key)),
    'recommendations.list': call([], () => recommendations.list()),
    'recommendations.knobs': call([handle.optional()], (_, [name]) => recommendations.knobs(name)),
    'recommendations.find': call([handle], (_, [name]) => recommendations.find(name)),
    'hosts.list': call([], () => hosts.list()),
    'leasing.list': call([], async ({ peer }) => (await leasing.list()).map((one) => visibleLease(peer, one))),
    'leasing.foreground': call([], async ({ peer }) =>
      (await leasing.foreground()).map((one) => visibleLease(peer, one)),
    ),
    'leasing.heldByEnded': call([id], (_, [job]) => leasing.heldByEnded(job)),
    'memory.get': call([id], async ({ peer }, [job]) => {
      const found = await jobs.get(job);
      return found !== null && maySteer(peer, found) ? memory.get(job) : null;
    }),
    'logs.read': call([id], async ({ peer }, [job]) => {
      checkMaySteer(peer, job, await jobs.get(job));
      return (await logs.read(job)).map((piece) => ({ ...piece, data: piece.data.toString('base64') }));
    }),
    /** Tells of each wake until the caller gives it up. */
    'events.listen': call([], async ({ signal, note }) => {
      const unlisten = await events.listen((what, job) => note([what, job]));
      try {
        note(['ready', '']);
        await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
      } finally {
        unlisten();
      }
      return null;
    }),
  };
}
