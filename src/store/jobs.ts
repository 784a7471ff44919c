import type { Redis } from 'ioredis';
import { z } from 'zod';
import { OomtuneError } from '../common/errors.js';
import { readJson } from '../contract/fields.js';
import {
  ENDED_STATES,
  JOB_SCHEMA,
  type JobRecord,
  type JobState,
  jobRecord,
  type SubmittedEnvironment,
  submittedEnvironment,
} from '../contract/job.js';
import { type JobOptions, jobOptions } from '../contract/options.js';
import { LOST_MS } from './hosts.js';
import { isJobId } from './job-id.js';
import { type FoundJob, fromFields, JobReader, type StoredJob, toFields, type UnreadableJob } from './job-reader.js';
import type { Keys } from './keys.js';
import { refuse } from './refused.js';
import { isWrongType, pairs, type Reply, readFields, write } from './replies.js';
import { runScript, type ScriptName } from './scripts.js';

/** `ours`: this host had it already. `away`: another host answers for it, and may be running it. */
export type Claimed =
  | { outcome: 'claimed' | 'ours'; record: StoredJob }
  | { outcome: 'missing' | 'unreadable' | 'ended' | 'held' | 'stale' | 'away'; record: null };

/** `kept`: nothing was lost. `restored`: written back. `fenced`, `ended`, `lost`: the host answers for the job no more. */
export type Restored = 'kept' | 'restored' | 'fenced' | 'ended' | 'lost';

/** What a job is called: its id, its name, and the key of its configuration. */
export interface JobLabel {
  job: string;
  name: string | null;
  key: string | null;
}

/** Where a job stands, by its record in Redis. */
export interface Standing {
  state: JobState;
  /** It is to be cancelled, or has been. */
  cancelAsked: boolean;
  epoch: number;
  claim: string | null;
  launches: number;
  pause: 'on' | 'off' | null;
}

export type PatchResult = 'ok' | 'missing' | 'ended' | 'lost' | 'held';

/** Job records: `{oomtune}:job:<id>`, fields as JSON but `state`, which is a plain word. */
export class JobStore {
  readonly #reader: JobReader;
  readonly #lostMs: number;

  /** `lostMs`: a host that has been silent for this long is lost. */
  constructor(
    private readonly redis: Redis,
    private readonly keys: Keys,
    lostMs = LOST_MS,
  ) {
    this.#lostMs = lostMs;
    this.#reader = new JobReader(redis, keys);
  }

  /** Records a new job and announces it. Throws for an id that is taken. */
  async create(record: JobRecord): Promise<void> {
    const checked = jobRecord.parse(record);
    const made = await this.#run('job/create', checked.job, [
      String(Date.parse(checked.submitted_at)),
      ...toFields(checked),
    ]);
    if (made !== 1) throw new OomtuneError('OOMTUNE_INTERNAL', `There is a job ${record.job} already.`, 'Try again.');
  }

  /** The record of a job by its whole id. Null when there is none; throws OOMTUNE_RECORD_UNREADABLE for one that cannot be used. */
  async get(id: string): Promise<StoredJob | null> {
    const found = await this.find(id);
    if (found.is === 'unreadable') throw unreadableRecord(found);
    return found.is === 'job' ? found.job : null;
  }

  async find(id: string): Promise<FoundJob> {
    return (isJobId(id) ? (await this.#reader.find([id]))[0] : undefined) ?? { is: 'missing' };
  }

  /** Records of jobs that have not ended, or whose end cannot be read. They stand where they are, and nobody works at them. */
  async unreadable(): Promise<UnreadableJob[]> {
    const ids = [
      ...(await this.redis.zrange(this.keys.live, '0', '-1')),
      ...(await this.redis.smembers(this.keys.pending)),
    ];
    return this.#reader.unreadable([...new Set(ids)]);
  }

  /** What every job is called, the latest first; nothing of it has been checked. */
  async labels(): Promise<JobLabel[]> {
    const ids = await this.redis.zrevrange(this.keys.jobs, 0, -1);
    const words = await this.fields(ids, ['name', 'key']);
    return ids.map((job, at) => ({ job, name: wordIn(words[at]?.[0]), key: wordIn(words[at]?.[1]) }));
  }

  /** These fields of each record, in the order of the ids; nothing of them has been checked. Null: there is no such record. */
  fields(ids: string[], names: readonly string[]): Promise<((string | null)[] | null)[]> {
    return this.#reader.fields(ids, names);
  }

  /** A field that holds a string; null for anything else. */
  async word(id: string, name: keyof JobRecord): Promise<string | null> {
    const [values] = await this.fields([id], [name]);
    return wordIn(values?.[0]);
  }

  /** The job that was submitted last. */
  async latest(): Promise<StoredJob | null> {
    const ids = await this.redis.zrevrange(this.keys.jobs, 0, 9);
    return (await this.#reader.readable(ids))[0] ?? null;
  }

  /** All jobs that have not ended and the last `ended` that have, in the order submitted. */
  async list({ ended = 20 }: { ended?: number } = {}): Promise<StoredJob[]> {
    const live = await this.live();
    const gone: StoredJob[] = [];
    for (let at = 0; gone.length < ended; at += 100) {
      const ids = await this.redis.zrevrange(this.keys.jobs, at, at + 99);
      if (ids.length === 0) break;
      const known = new Set(live.map((job) => job.job));
      const found = await this.#reader.readable(ids.filter((id) => !known.has(id)));
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

  /** All jobs that have not ended. */
  async live(): Promise<StoredJob[]> {
    return this.#reader.indexed(await this.redis.zrange(this.keys.live, '0', '-1'));
  }

  /** Jobs that are to be put into a queue. */
  async pending(): Promise<StoredJob[]> {
    return this.#reader.indexed(await this.redis.smembers(this.keys.pending));
  }

  async isPending(ids: string[]): Promise<boolean[]> {
    return ids.length === 0 ? [] : (await this.redis.smismember(this.keys.pending, ...ids)).map((one) => one === 1);
  }

  /** Whether the job is to be put into its queue now. */
  async unpend({ job, epoch }: Pick<StoredJob, 'job' | 'epoch'>, reason: string): Promise<boolean> {
    return (await this.#run('job/unpend', job, [epoch, JSON.stringify(reason)])) === 1;
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
    const replies = await readFields(this.redis, ids.map(this.keys.job), ['state', 'environment']);
    return replies.map((reply) => {
      if (reply.is !== 'value') return reply;
      const [state, environment] = reply.value;
      if (ENDED_STATES.includes(state as JobState)) return { is: 'value', value: null };
      return { is: 'value', value: readJson(submittedEnvironment, environment)?.file ?? null };
    });
  }

  /** How many there are, without reading them. */
  async counts(): Promise<{ live: number; all: number }> {
    const [live, all] = await Promise.all([this.redis.zcard(this.keys.live), this.redis.zcard(this.keys.jobs)]);
    return { live, all };
  }

  /**
   * Writes into a record, in one step with the check that it may: `ended`: the job has ended and stays so; `lost`: another
   * claim holds now; `held`: it was put on hold before it could start.
   */
  async patch(id: string, patch: Partial<JobRecord>, claim = ''): Promise<PatchResult> {
    const { state = '', job: _job, ended_at: _ended, ...rest } = patch;
    return (await this.#run('job/patch', id, [claim, now(), state, ...toFields(rest)])) as PatchResult;
  }

  /** Makes a host answer for a job, and reads it in the same step. `unreadable`: it was left as it is. */
  async claim({ job, epoch }: Pick<StoredJob, 'job' | 'epoch'>, host: string, claim: string): Promise<Claimed> {
    const args = [host, claim, epoch, now(), JOB_SCHEMA];
    let reply: string[];
    try {
      reply = (await this.#run('job/claim', job, args)) as string[];
    } catch (error) {
      if (!isWrongType(error)) throw error;
      return { outcome: 'unreadable', record: null };
    }
    const [outcome, ...fields] = reply as [Claimed['outcome'], ...string[]];
    if (outcome !== 'claimed' && outcome !== 'ours') return { outcome, record: null };
    const read = fromFields(job, pairs(fields));
    if (read.is === 'job') return { outcome, record: read.job };
    await this.#reader.note(read);
    if (outcome === 'claimed') await this.#run('job/undo-claim', job, [claim]);
    return { outcome: 'unreadable', record: null };
  }

  /** Writes back what a host answers for, where Redis has lost its record or stands as before; what took its place is kept aside. */
  async restore(held: { host: string; claim: string; epoch: number; record: JobRecord }): Promise<Restored> {
    const { host, claim, epoch } = held;
    const record = jobRecord.parse(held.record);
    const args = [host, claim, epoch, record.launches.length, Date.parse(record.submitted_at), ...toFields(record)];
    const restore = async () => (await this.#run('job/restore', record.job, args)) as Restored;
    return restore().catch(async (error: unknown) => {
      if (!isWrongType(error) || !(await this.#moveAside(record.job))) throw error;
      return restore();
    });
  }

  /** Writes back how a job ended, where Redis stands as before its end. False: it knows of it, or nothing at all of the job. */
  async restoreEnd({ epoch, record }: { epoch: number; record: JobRecord }): Promise<boolean> {
    const checked = jobRecord.parse(record);
    return (await this.#run('job/restore-end', checked.job, [epoch, ...toFields(checked)])) === 'restored';
  }

  async #moveAside(job: string): Promise<boolean> {
    const aside = this.keys.aside(job, Date.now());
    const moved = await runScript(this.redis, 'record/move-aside', [this.keys.job(job), aside], []);
    if (moved !== 1) return false;
    await refuse(this.redis, this.keys, this.keys.job(job), `it was no record; what it was is kept in ${aside}`);
    return true;
  }

  /** Gives a claimed job back that was not launched. */
  async unclaim(id: string, claim: string, reason: string): Promise<boolean> {
    return (await this.#run('job/unclaim', id, [claim, JSON.stringify(reason), now()])) === 'ok';
  }

  /** `cancelled` where that was done at once; another state: its host has been told. Ended jobs stay as they are. */
  async cancel(id: string): Promise<JobState | 'missing'> {
    const found = await this.find(id);
    const host = found.is === 'job' ? found.job.claimHost : null;
    const reason = JSON.stringify(`cancelled by the user; ${host ?? 'its host'} ends it`);
    return (await this.#run('job/cancel', id, [now(), reason, this.#lostMs])) as JobState;
  }

  async hold(id: string): Promise<JobState | 'missing'> {
    return (await this.#run('job/hold', id, [JSON.stringify('on hold until it is released')])) as JobState;
  }

  /** Has a running job stand still, or go on. The state that forbids it, or `ok`: its host has been told. */
  async pause(id: string, pause: 'on' | 'off'): Promise<JobState | 'missing' | 'ok'> {
    return (await this.#run('job/pause', id, [JSON.stringify(pause)])) as JobState | 'missing' | 'ok';
  }

  /** Changes options of a job that was not launched. The state that forbids it, or `ok`. */
  async edit(id: string, changes: Partial<JobOptions>): Promise<JobState | 'missing' | 'ok'> {
    for (;;) {
      const read = isJobId(id) ? await this.redis.hget(this.keys.job(id), 'options') : null;
      if (read === null) return 'missing';
      const options = JSON.stringify(jobOptions.parse({ ...JSON.parse(read), ...changes }));
      const args = [read, options, JSON.stringify('waits for a daemon')];
      const done = (await this.#run('job/edit', id, args)) as JobState | 'missing' | 'ok' | 'changed';
      if (done !== 'changed') return done;
    }
  }

  async release(id: string): Promise<JobState | 'missing'> {
    return (await this.#run('job/release', id, [JSON.stringify('waits for a daemon')])) as JobState;
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
    return (await this.#run('job/retry', id, [this.#lostMs, ...toFields(anew)])) as JobState;
  }

  /** Gives a job of a host that is forgotten to others (`queued`), or ends it. `no`: it is the host's no more. */
  async forget(job: StoredJob, state: JobState, patch: Partial<JobRecord>): Promise<'ok' | 'alive' | 'no'> {
    const args = [job.claimHost ?? '', job.epoch, state, now(), ...toFields(patch)];
    return (await this.#run('job/forget', job.job, args)) as 'ok' | 'alive' | 'no';
  }

  /** Queues a job anew whose queue entry or claiming host is gone before anything was launched. */
  async requeue(job: Pick<StoredJob, 'job' | 'epoch'>, reason: string): Promise<boolean> {
    const args = [job.epoch, JSON.stringify(reason)];
    return (await this.#run('job/requeue', job.job, args)) === 'ok';
  }

  /** Forgets the oldest ended jobs beyond `keep`; returns their ids. */
  async prune(keep: number): Promise<string[]> {
    const surplus = (await this.redis.zcard(this.keys.jobs)) - keep;
    if (surplus <= 0) return [];
    const oldest = await this.redis.zrange(this.keys.jobs, '0', String(surplus - 1));
    const live = new Set(await this.redis.zrange(this.keys.live, '0', '-1'));
    const gone = oldest.filter((id) => !live.has(id));
    if (gone.length === 0) return [];
    const multi = this.redis.multi().zrem(this.keys.jobs, ...gone);
    for (const id of gone) multi.del(this.keys.job(id), this.keys.log(id), this.keys.memory(id));
    await write(multi);
    return gone;
  }

  async #run(script: ScriptName, id: string, args: (string | number)[]): Promise<unknown> {
    const { job, jobs, live, pending, events, wake, hosts } = this.keys;
    const keys = [job(id), jobs, live, pending, events, wake, this.keys.host(''), hosts];
    return runScript(this.redis, script, keys, [id, ...args]);
  }
}

function unreadableRecord({ job, why, newer }: UnreadableJob): OomtuneError {
  return new OomtuneError(
    'OOMTUNE_RECORD_UNREADABLE',
    `The record of ${job} cannot be read: ${why}.`,
    newer
      ? 'Use the version that wrote it; this one leaves it alone.'
      : 'Mend or delete its key in Redis; until then nothing is done with the job. `oomtune doctor` lists all such records.',
  );
}

const wordIn = (field: string | null | undefined): string | null => readJson(z.string(), field);

const now = (): string => new Date().toISOString();
