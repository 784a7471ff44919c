import type { Redis } from 'ioredis';
import { z } from 'zod';
import { OomtuneError } from '../common/errors.js';
import { readJson } from '../contract/fields.js';
import { ENDED_STATES, type JobRecord, type JobState, submittedEnvironment } from '../contract/job.js';
import { isJobId } from './job-id.js';
import { type FoundJob, fromFields, type StoredJob, type UnreadableJob } from './job-record.js';
import type { Keys } from './keys.js';
import { refuse } from './refused.js';
import { type Reply, readFields, readHashes, valueIn } from './replies.js';
import { runScript } from './scripts.js';

/** A job's id, its name, and the key of its configuration. */
export interface JobLabel {
  job: string;
  name: string | null;
  key: string | null;
}

/** A job's state and owner in its record. */
export interface Standing {
  state: JobState;
  /** It is to be cancelled, or has been. */
  cancelAsked: boolean;
  epoch: number;
  claim: string | null;
  launches: number;
  pause: 'on' | 'off' | null;
}

/** Ended jobs that are read at a time. */
const ENDED_READ = 100;

/** Reads jobs' records. An unusable one (garbage, another type, a newer version's) is noted and left; it may be well later. */
export class JobReader {
  constructor(
    protected readonly redis: Redis,
    protected readonly keys: Keys,
  ) {}

  /** The record of a job by its whole id. Null when there is none; throws OOMTUNE_RECORD_UNREADABLE for one that cannot be used. */
  async get(id: string): Promise<StoredJob | null> {
    const found = await this.find(id);
    if (found.is === 'unreadable') throw unreadableRecord(found);
    return found.is === 'job' ? found.job : null;
  }

  async find(id: string): Promise<FoundJob> {
    return (isJobId(id) ? (await this.#findAll([id]))[0] : undefined) ?? { is: 'missing' };
  }

  /** Of the jobs that have not ended and the latest that have. Their records stand where they are, and nobody works at them. */
  async unreadable(): Promise<UnreadableJob[]> {
    const latest = await this.redis.zrevrange(this.keys.jobs, 0, ENDED_READ - 1);
    const ids = [...(await this.liveIds()), ...(await this.redis.smembers(this.keys.pending)), ...latest];
    return (await this.#findAll([...new Set(ids)])).flatMap((one) =>
      one.is === 'unreadable' ? [{ job: one.job, why: one.why, newer: one.newer }] : [],
    );
  }

  /** What every job is called, the latest first; nothing of it has been checked. */
  async labels(): Promise<JobLabel[]> {
    const ids = await this.redis.zrevrange(this.keys.jobs, 0, -1);
    const words = await this.fields(ids, ['name', 'key']);
    return ids.map((job, at) => ({ job, name: wordIn(words[at]?.[0]), key: wordIn(words[at]?.[1]) }));
  }

  /** A field that holds a string; null for anything else. */
  async word(id: string, name: keyof JobRecord): Promise<string | null> {
    const [values] = await this.fields([id], [name]);
    return wordIn(values?.[0]);
  }

  /** The job that was submitted last. */
  async latest(): Promise<StoredJob | null> {
    const ids = await this.redis.zrevrange(this.keys.jobs, 0, 9);
    return (await this.#readable(ids))[0] ?? null;
  }

  /** All jobs that have not ended and the last `ended` that have, in the order submitted. */
  async list({ ended = 20 }: { ended?: number } = {}): Promise<StoredJob[]> {
    const live = await this.live();
    const gone: StoredJob[] = [];
    for (let at = 0; gone.length < ended; at += ENDED_READ) {
      const ids = await this.redis.zrevrange(this.keys.jobs, at, at + ENDED_READ - 1);
      if (ids.length === 0) break;
      const known = new Set(live.map((job) => job.job));
      const found = await this.#readable(ids.filter((id) => !known.has(id)));
      gone.push(...found.filter((job) => ENDED_STATES.includes(job.state)));
    }
    return [...gone.slice(0, ended), ...live].sort((a, b) => (a.submitted_at < b.submitted_at ? -1 : 1));
  }

  /** Ids of all jobs that have not ended, those whose records cannot be read included. */
  liveIds(): Promise<string[]> {
    return this.redis.zrange(this.keys.live, '0', '-1');
  }

  /** The same with the time submitted (ms). */
  async liveSince(): Promise<Map<string, number>> {
    const entries = await this.redis.zrange(this.keys.live, '0', '-1', 'WITHSCORES');
    return new Map(entries.flatMap((id, at) => (at % 2 === 0 ? [[id, Number(entries[at + 1])] as const] : [])));
  }

  /** Ids of the latest `live` jobs that have not ended and of some `ended` that have, the latest first. */
  async latestIds({ live, ended }: { live: number; ended: number }): Promise<string[]> {
    const alive = await this.redis.zrevrange(this.keys.live, 0, live - 1);
    const latest = await this.redis.zrevrange(this.keys.jobs, 0, ended + alive.length - 1);
    return [...new Set([...alive, ...latest])];
  }

  /** Whether any job that has not ended is Slurm's. */
  async inSlurm(): Promise<boolean> {
    const found = await this.fields(await this.liveIds(), ['slurm']);
    return found.some((values) => values?.[0] != null && values[0] !== 'null');
  }

  /** All jobs that have not ended. */
  async live(): Promise<StoredJob[]> {
    return this.#indexed(await this.liveIds());
  }

  /** How many jobs of each owner wait to start, and run; '' where the owner is not known. */
  async byOwner(): Promise<Map<string, { waiting: number; working: number }>> {
    const found = new Map<string, { waiting: number; working: number }>();
    for (const values of await this.fields(await this.liveIds(), ['state', 'owner', 'slurm'])) {
      const [state = null, owner, slurm] = values ?? [];
      if (slurm != null && slurm !== 'null') continue; // Slurm counts its own
      const counts = found.get(wordIn(owner) ?? '') ?? { waiting: 0, working: 0 };
      if (state === 'queued' || state === 'held') counts.waiting += 1;
      else if (state === 'searching' || state === 'running') counts.working += 1;
      else continue;
      found.set(wordIn(owner) ?? '', counts);
    }
    return found;
  }

  /** Jobs that are to be put into a queue. */
  async pending(): Promise<StoredJob[]> {
    return this.#indexed(await this.redis.smembers(this.keys.pending));
  }

  async isPending(ids: string[]): Promise<boolean[]> {
    return ids.length === 0 ? [] : (await this.redis.smismember(this.keys.pending, ...ids)).map((one) => one === 1);
  }

  /** What each record says of who answers for the job, and whether it is to end. */
  async standing(ids: string[]): Promise<Reply<Standing>[]> {
    const fields = ['state', 'cancel', 'epoch', 'claim', 'launches', 'pause'];
    return (await readFields(this.redis, ids.map(this.keys.job), fields)).map((reply) => {
      if (reply.is !== 'value') return reply;
      const [state, cancel, epoch, claim, launches, pause] = reply.value;
      if (typeof state !== 'string') return { is: 'missing' };
      const value: Standing = {
        state: state as JobState,
        cancelAsked: typeof cancel === 'string' || state === 'cancelled',
        epoch: Number(epoch ?? 1),
        claim: claim ?? null,
        launches: readJson(z.array(z.unknown()), launches)?.length ?? 0,
        pause: pause === '"on"' ? 'on' : pause === '"off"' ? 'off' : null,
      };
      return { is: 'value', value };
    });
  }

  /** The file that each job's environment is needed from; null: it has ended, or has none. */
  async environments(ids: string[]): Promise<Reply<string | null>[]> {
    if (ids.length === 0) return [];
    const replies = await readFields(this.redis, ids.map(this.keys.job), ['state', 'environment']);
    const owed = await this.redis.hmget(this.keys.notify, ...ids); // somebody is still to be told of it
    return replies.map((reply, at) => {
      if (reply.is !== 'value') return reply;
      const [state, environment] = reply.value;
      if (ENDED_STATES.includes(state as JobState) && owed[at] == null) return { is: 'value', value: null };
      return { is: 'value', value: readJson(submittedEnvironment, environment)?.file ?? null };
    });
  }

  /** How many there are, without reading them. */
  async counts(): Promise<{ live: number; all: number }> {
    const [live, all] = await Promise.all([this.redis.zcard(this.keys.live), this.redis.zcard(this.keys.jobs)]);
    return { live, all };
  }

  /** In the order of the ids. Throws where Redis would not say of one: that is neither missing nor wrong. */
  async #findAll(ids: string[]): Promise<FoundJob[]> {
    const replies = await readHashes(this.redis, ids.map(this.keys.job));
    const all = replies.map((reply, at): FoundJob => {
      const job = ids[at] as string;
      if (reply.is === 'wrong type')
        return { is: 'unreadable', job, why: 'its key holds something else', newer: false };
      const hash = valueIn(reply);
      return hash === null ? { is: 'missing' } : fromFields(job, hash);
    });
    for (const one of all) if (one.is === 'unreadable') await this.note(one);
    return all;
  }

  /** These fields of each record, in the order of the ids; nothing of them has been checked. Null: there is no such record. */
  async fields(ids: string[], names: readonly string[]): Promise<((string | null)[] | null)[]> {
    const replies = await readFields(this.redis, ids.map(this.keys.job), names);
    return replies.map((reply) => (reply.is === 'wrong type' ? null : valueIn(reply)));
  }

  /** Those that can be used. */
  async #readable(ids: string[]): Promise<StoredJob[]> {
    return (await this.#findAll(ids)).flatMap((one) => (one.is === 'job' ? [one.job] : []));
  }

  /** Those that can be used of an index. It is written in one step with the records: an id without one is taken out of it. */
  async #indexed(ids: string[]): Promise<StoredJob[]> {
    const all = await this.#findAll(ids);
    const { job, live, pending } = this.keys;
    for (const [at, one] of all.entries()) {
      const id = ids[at] as string;
      if (one.is === 'missing') await runScript(this.redis, 'record/drop-missing', [job(id), live, pending], [id]);
    }
    return all.flatMap((one) => (one.is === 'job' ? [one.job] : []));
  }

  /** In a daemon's log once, and in `{oomtune}:refused`; who asks a command line for it is told. */
  async note({ job, why, newer }: UnreadableJob): Promise<void> {
    if (!newer) await refuse(this.redis, this.keys, this.keys.job(job), why, 'info');
  }
}

function unreadableRecord({ job, why, newer }: UnreadableJob): OomtuneError {
  return new OomtuneError(
    'OOMTUNE_RECORD_UNREADABLE',
    `The record of ${job} cannot be read: ${why}.`,
    newer
      ? 'Use the version that wrote it; this one leaves it alone.'
      : 'Mend or delete its key in Redis; until then nothing is done with the job. `oomtune doctor` lists such records.',
  );
}

const wordIn = (field: string | null | undefined): string | null => readJson(z.string(), field);
