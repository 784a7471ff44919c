import type { Redis } from 'ioredis';
import { OomtuneError } from '../common/errors.js';
import { isJobId } from './job-id.js';
import { type JobLabel, readLabels } from './job-labels.js';
import * as scripts from './job-scripts.js';
import type { Keys } from './keys.js';
import { pairs } from './pairs.js';
import { refuse } from './refused.js';
import { isWrongType, type Reply, readFields, readHashes, valueIn, write } from './replies.js';
import { ENDED_STATES, jobRecord, submittedEnvironment } from './schemas.js';
import type { Script } from './script.js';
import { fromFields, type StoredJob, toFields } from './stored-job.js';
import type { JobRecord, JobState, SubmittedEnvironment } from './types.js';

/** `ours`: this host had it already. `away`: another host answers for it, and may be running it. */
export type Claimed =
  | { outcome: 'claimed' | 'ours'; record: StoredJob }
  | { outcome: 'missing' | 'unreadable' | 'ended' | 'held' | 'stale' | 'away'; record: null };

export type PatchResult = 'ok' | 'missing' | 'ended' | 'lost' | 'held';

/** Job records: `{oomtune}:job:<id>`, fields as JSON but `state`, which is a plain word. */
export class JobStore {
  readonly #redis: Redis;
  readonly #keys: Keys;

  constructor(redis: Redis, keys: Keys) {
    this.#redis = redis;
    this.#keys = keys;
  }

  /** Records a new job and announces it. Throws for an id that is taken. */
  async create(record: JobRecord): Promise<void> {
    const checked = jobRecord.parse(record);
    const made = await this.#run(scripts.CREATE, checked.job, [
      String(Date.parse(checked.submitted_at)),
      ...toFields(checked),
    ]);
    if (made !== 1) throw new OomtuneError('OOMTUNE_INTERNAL', `There is a job ${record.job} already.`, 'Try again.');
  }

  /** The record of a job by its whole id. Null when there is none, or what is there cannot be trusted. */
  async get(id: string): Promise<StoredJob | null> {
    return isJobId(id) ? this.#read(id) : null;
  }

  /** What every job is called, the latest first; nothing of it has been checked. */
  labels(): Promise<JobLabel[]> {
    return readLabels(this.#redis, this.#keys);
  }

  /** The job that was submitted last. */
  async latest(): Promise<StoredJob | null> {
    const ids = await this.#redis.zrevrange(this.#keys.jobs, 0, 9);
    return (await this.#readMany(ids)).found[0] ?? null;
  }

  /** All jobs that have not ended and the last `ended` that have, in the order submitted. */
  async list({ ended = 20 }: { ended?: number } = {}): Promise<StoredJob[]> {
    const live = await this.live();
    const gone: StoredJob[] = [];
    for (let at = 0; gone.length < ended; at += 100) {
      const ids = await this.#redis.zrevrange(this.#keys.jobs, at, at + 99);
      if (ids.length === 0) break;
      const known = new Set(live.map((job) => job.job));
      const { found } = await this.#readMany(ids.filter((id) => !known.has(id)));
      gone.push(...found.filter((job) => ENDED_STATES.includes(job.state)));
    }
    return [...gone.slice(0, ended), ...live].sort((a, b) => (a.submitted_at < b.submitted_at ? -1 : 1));
  }

  /** All jobs that have not ended. */
  async live(): Promise<StoredJob[]> {
    return this.#readIndexed(await this.#redis.zrange(this.#keys.live, '0', '-1'));
  }

  /** Jobs that are to be put into a queue. */
  async pending(): Promise<StoredJob[]> {
    return this.#readIndexed(await this.#redis.smembers(this.#keys.pending));
  }

  async isPending(ids: string[]): Promise<boolean[]> {
    return ids.length === 0 ? [] : (await this.#redis.smismember(this.#keys.pending, ...ids)).map((one) => one === 1);
  }

  /** Whether the job is to be put into its queue now. */
  async unpend(id: string, reason: string): Promise<boolean> {
    return (await this.#run(scripts.UNPEND, id, [JSON.stringify(reason)])) === 1;
  }

  /**
   * Tells which of these jobs are to be cancelled (or have been, behind our back): those whose record says so. Throws the
   * first refusal when all that could be read were told.
   */
  async cancelAsked(ids: string[], onAsked: (id: string) => void): Promise<void> {
    const replies = await readFields(
      this.#redis,
      ids.map((id) => this.#keys.job(id)),
      ['cancel', 'state'],
    );
    for (const [at, reply] of replies.entries()) {
      if (reply.is !== 'value') continue;
      const [cancel, state] = reply.value;
      if (typeof cancel === 'string' || state === 'cancelled') onAsked(ids[at] as string);
    }
    for (const reply of replies) valueIn(reply);
  }

  /** The file that each job's environment is needed from; null: it has ended, or has none. */
  async environments(ids: string[]): Promise<Reply<string | null>[]> {
    const replies = await readFields(
      this.#redis,
      ids.map((id) => this.#keys.job(id)),
      ['state', 'environment'],
    );
    return replies.map((reply) => {
      if (reply.is !== 'value') return reply;
      const [state, environment] = reply.value;
      if (ENDED_STATES.includes(state as JobState)) return { is: 'value', value: null };
      const read = submittedEnvironment.safeParse(fieldOf(environment));
      return { is: 'value', value: read.success ? read.data.file : null };
    });
  }

  /** How many there are, without reading them. */
  async counts(): Promise<{ live: number; all: number }> {
    const [live, all] = await Promise.all([this.#redis.zcard(this.#keys.live), this.#redis.zcard(this.#keys.jobs)]);
    return { live, all };
  }

  /**
   * Writes into a record, in one step with the check that it may: `ended`: the job has ended and stays so; `lost`: another
   * claim holds now; `held`: it was put on hold before it could start.
   */
  async patch(id: string, patch: Partial<JobRecord>, claim = ''): Promise<PatchResult> {
    const { state = '', job: _job, ended_at: _ended, ...rest } = patch;
    return (await this.#run(scripts.PATCH, id, [claim, now(), state, ...toFields(rest)])) as PatchResult;
  }

  /** Makes a host answer for a job, and reads it in the same step. A record that cannot be trusted is set aside: `missing`. */
  async claim({ job, epoch }: Pick<StoredJob, 'job' | 'epoch'>, host: string, claim: string): Promise<Claimed> {
    const args = [host, claim, epoch, now()];
    let reply: string[];
    try {
      reply = (await this.#run(scripts.CLAIM, job, args)) as string[];
    } catch (error) {
      if (!isWrongType(error)) throw error;
      await refuse(this.#redis, this.#keys, this.#keys.job(job), error.message);
      return { outcome: 'unreadable', record: null };
    }
    const [outcome, ...fields] = reply as [Claimed['outcome'], ...string[]];
    if (outcome !== 'claimed' && outcome !== 'ours') return { outcome, record: null };
    const record = fromFields(job, pairs(fields));
    if (typeof record === 'object' && record !== null) return { outcome, record };
    await this.setAside(job, record ?? 'there is no such record');
    return { outcome: 'unreadable', record: null };
  }

  /** Gives a claimed job back that was not launched. */
  async unclaim(id: string, claim: string, reason: string): Promise<boolean> {
    return (await this.#run(scripts.UNCLAIM, id, [claim, JSON.stringify(reason), now()])) === 'ok';
  }

  /** `cancelled` where that was done at once; another state: its host has been told. Ended jobs stay as they are. */
  async cancel(id: string): Promise<JobState | 'missing'> {
    const job = await this.#read(id);
    const reason = JSON.stringify(`cancelled by the user; ${job?.claimHost ?? 'its host'} ends it`);
    return (await this.#run(scripts.CANCEL, id, [now(), reason])) as JobState;
  }

  async hold(id: string): Promise<JobState | 'missing'> {
    return (await this.#run(scripts.HOLD, id, [JSON.stringify('on hold until it is released')])) as JobState;
  }

  async release(id: string): Promise<JobState | 'missing'> {
    return (await this.#run(scripts.RELEASE, id, [JSON.stringify('waits for a daemon')])) as JobState;
  }

  async retry(id: string, environment: SubmittedEnvironment | null): Promise<JobState | 'missing' | 'waiting'> {
    const anew: Partial<JobRecord> = {
      environment,
      reason: 'waits for a daemon',
      failure: null,
      host: null,
      devices: [],
      config: null,
      launches: [],
      journal: [],
      started_at: null,
      ended_at: null,
      exit_code: null,
    };
    return (await this.#run(scripts.RETRY, id, toFields(anew))) as JobState;
  }

  /** Queues a job anew whose queue entry or claiming host is gone before anything was launched. */
  async requeue(job: Pick<StoredJob, 'job' | 'epoch'>, reason: string): Promise<boolean> {
    const args = [job.epoch, JSON.stringify(reason)];
    return (await this.#run(scripts.REQUEUE, job.job, args)) === 'ok';
  }

  /** Forgets the oldest ended jobs beyond `keep`; returns their ids. */
  async prune(keep: number): Promise<string[]> {
    const surplus = (await this.#redis.zcard(this.#keys.jobs)) - keep;
    if (surplus <= 0) return [];
    const oldest = await this.#redis.zrange(this.#keys.jobs, '0', String(surplus - 1));
    const live = new Set(await this.#redis.zrange(this.#keys.live, '0', '-1'));
    const gone = oldest.filter((id) => !live.has(id));
    if (gone.length === 0) return [];
    const multi = this.#redis.multi().zrem(this.#keys.jobs, ...gone);
    for (const id of gone) multi.del(this.#keys.job(id), this.#keys.log(id), this.#keys.memory(id));
    await write(multi);
    return gone;
  }

  /** Takes a record that cannot be read out of the way, so that nobody stumbles over it again. */
  async setAside(id: string, why: string): Promise<void> {
    await write(this.#redis.multi().zrem(this.#keys.live, id).srem(this.#keys.pending, id));
    await refuse(this.#redis, this.#keys, this.#keys.job(id), why);
  }

  async #run(script: Script, id: string, args: (string | number)[]): Promise<unknown> {
    const { job, jobs, live, pending, events, wake } = this.#keys;
    const keys = [job(id), jobs, live, pending, events, wake, this.#keys.host('')];
    return script.run(this.#redis, keys, [id, ...args]);
  }

  async #read(id: string): Promise<StoredJob | null> {
    return (await this.#readMany([id])).found[0] ?? null;
  }

  /** Index and record are written in one step: an id without a record was not written by us. */
  async #readIndexed(ids: string[]): Promise<StoredJob[]> {
    const { found, missing } = await this.#readMany(ids);
    for (const id of missing) await this.setAside(id, 'there is no such record');
    return found;
  }

  /** Throws where Redis would not say: a record that could not be read is neither missing nor wrong. */
  async #readMany(ids: string[]): Promise<{ found: StoredJob[]; missing: string[] }> {
    const found: StoredJob[] = [];
    const missing: string[] = [];
    for (let at = 0; at < ids.length; at += 200) {
      const some = ids.slice(at, at + 200);
      const keys = some.map((id) => this.#keys.job(id));
      for (const [index, reply] of (await readHashes(this.#redis, keys)).entries()) {
        const id = some[index] as string;
        if (reply.is === 'wrong type') {
          await refuse(this.#redis, this.#keys, this.#keys.job(id), reply.error.message);
          continue;
        }
        const hash = valueIn(reply);
        const read = hash === null ? null : fromFields(id, hash);
        if (typeof read === 'string') await this.setAside(id, read);
        else if (read !== null) found.push(read);
        else missing.push(id);
      }
    }
    return { found, missing };
  }
}

function fieldOf(text: string | null | undefined): unknown {
  try {
    return JSON.parse(text ?? 'null');
  } catch {
    return null;
  }
}

const now = (): string => new Date().toISOString();
