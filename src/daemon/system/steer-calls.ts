import { z } from 'zod';
import { OomtuneError, usageError } from '../../common/errors.js';
import { ENDED_STATES, type JobRecord, jobRecord, submittedEnvironment } from '../../contract/job.js';
import { jobOptions } from '../../contract/options.js';
import { NO_DAEMON } from '../../contract/waiting.js';
import { hostName, type Store, type StoredJob } from '../../store/index.js';
import { checkLimits, isAdmin, mostWaiting } from '../limits.js';
import { notBegun } from '../submit.js';
import { type Calls, call, id } from './calls.js';
import { MOST_ASKED, ownedEnvironments } from './owned-environments.js';
import type { Peer } from './peer.js';
import { checkMaySteer } from './visible.js';

/** Jobs of one user that have not ended: more would fill Redis, which is everybody's. */
const MOST_LIVE = 5000;

/** Tells a call that is made again, as its answer was lost with the connection. A client of before an upgrade makes none again. */
const step = z
  .string()
  .regex(/^[0-9a-f]{16}$/)
  .optional();

/** The calls that change something. Each is for the job's owner and for administrators. */
export function steerCalls(store: Store): Calls {
  const { jobs, leasing } = store;
  const counts = new LiveCounts(store);
  const own = async (peer: Peer, job: string): Promise<StoredJob> => {
    const found = await jobs.get(job);
    checkMaySteer(peer, job, found);
    return found;
  };
  /** What a lost host had is freed by the daemon: it is the only one of the machine. */
  const steer = (what: 'hold' | 'release' | 'cancel') =>
    call([id], async ({ peer }, [job]) => {
      await own(peer, job);
      return jobs[what](job);
    });
  return {
    'jobs.create': call([jobRecord], async ({ peer }, [asked]) => {
      const live = await counts.of(peer.uid);
      if (live >= MOST_LIVE) {
        const why = `${peer.name} has ${live} jobs that have not ended.`;
        throw new OomtuneError('OOMTUNE_NOT_PERMITTED', why, 'Wait until some have ended, or cancel them.');
      }
      // An id that stands for a reservation of a foreground command would take that over
      if ((await leasing.list()).some(({ owner }) => owner === asked.job)) throw taken(asked.job);
      const record = submittedBy(peer, asked);
      await checkLimits(store, peer.name, record.options, 1);
      await jobs.create(record, mostWaiting(peer.name)).catch((error: unknown) => {
        throw error instanceof OomtuneError && error.code === 'OOMTUNE_INTERNAL' ? taken(asked.job) : error;
      });
      counts.add(peer.uid);
      return null;
    }),
    'jobs.cancel': steer('cancel'),
    'jobs.hold': steer('hold'),
    'jobs.release': steer('release'),
    'jobs.pause': call([id, z.enum(['on', 'off'])], async ({ peer }, [job, pause]) => {
      await own(peer, job);
      return jobs.pause(job, pause);
    }),
    'jobs.edit': call(
      [id, jobOptions.pick({ priority: true, timeSeconds: true }).partial()],
      async ({ peer }, [job, changes]) => {
        await own(peer, job);
        const { priority } = changes;
        const across = priority === undefined ? {} : { acrossUsers: countsAcross(peer) && priority !== 0 };
        return jobs.edit(job, { ...changes, ...across });
      },
    ),
    'jobs.retry': call([id, submittedEnvironment.nullable(), step], async ({ peer }, [job, environment, asked]) => {
      const { uid, owner, options, state } = await own(peer, job);
      if (ENDED_STATES.includes(state)) await checkLimits(store, owner, options, 1);
      // An administrator's environment is none for another's job, and lies where its owner cannot read it
      const theirs =
        uid !== peer.uid && environment !== null ? { ...environment, file: null, withheld: [] } : environment;
      if (theirs !== null) theirs.host = hostName();
      return jobs.retry(job, theirs, {}, asked);
    }),
    'jobs.environments': call([z.array(id).max(MOST_ASKED)], ({ peer }, [ids]) =>
      ownedEnvironments(store, peer.uid, ids),
    ),
  };
}

const COUNT_MS = 2000;

/** How many jobs of each user have not ended, counted anew every two seconds: a sweep of thousands is submitted one by one. */
class LiveCounts {
  #counts = new Map<number, number>();
  #at = 0;

  constructor(private readonly store: Store) {}

  async of(uid: number): Promise<number> {
    if (Date.now() - this.#at > COUNT_MS) {
      const uids = await this.store.jobs.fields(await this.store.jobs.liveIds(), ['uid']);
      this.#counts = new Map();
      for (const one of uids) this.add(Number(one?.[0] ?? -1));
      this.#at = Date.now();
    }
    return this.#counts.get(uid) ?? 0;
  }

  add(uid: number): void {
    this.#counts.set(uid, (this.#counts.get(uid) ?? 0) + 1);
  }
}

/** Whether this user's priorities count across all users. */
const countsAcross = ({ admin, name }: Peer): boolean => admin || isAdmin(name);

/** The record as the daemon writes it: what only the daemon knows or decides is not taken from the client. */
function submittedBy(peer: Peer, asked: JobRecord): JobRecord {
  const { acrossUsers: _, ...options } = asked.options;
  const { host } = options;
  if (host !== null && host !== hostName())
    throw usageError(`This machine is ${hostName()}, not ${host}.`, 'Leave out --host: its daemon serves no other.');
  return {
    schema: 1,
    job: asked.job,
    name: asked.name,
    owner: peer.name,
    uid: peer.uid,
    reason: NO_DAEMON,
    command: asked.command,
    options: { ...options, acrossUsers: countsAcross(peer) && options.priority !== 0 },
    environment: asked.environment && { ...asked.environment, host: hostName(), withheld: [] },
    ...notBegun(),
  };
}

const taken = (job: string) => usageError(`There is a job ${job} already.`, 'Submit it again.');
