import type { Redis } from 'ioredis';
import { OomtuneError } from '../common/errors.js';
import { JOB_SCHEMA, type JobRecord, type JobState, jobRecord, type SubmittedEnvironment } from '../contract/job.js';
import { type JobOptions, jobOptions } from '../contract/options.js';
import { NO_DAEMON } from '../contract/waiting.js';
import { LOST_MS } from './hosts.js';
import { isJobId } from './job-id.js';
import { JobReader } from './job-reader.js';
import { fromFields, type StoredJob, toFields } from './job-record.js';
import type { Keys } from './keys.js';
import { OWED } from './notify.js';
import { refuse } from './refused.js';
import { isWrongType, pairs, write } from './replies.js';
import { runScript, type ScriptName } from './scripts.js';
import { newStep } from './step.js';

/** `ours`: this host had it already. `away`: another host has it, and may be running it. */
export type Claimed =
  | { outcome: 'claimed' | 'ours'; record: StoredJob }
  | { outcome: 'missing' | 'unreadable' | 'ended' | 'held' | 'stale' | 'away'; record: null };

/** `kept`: nothing was lost. `restored`: written again. `fenced`, `ended`, `lost`: no longer this host's. */
export type Restored = 'kept' | 'restored' | 'fenced' | 'ended' | 'lost';

export type PatchResult = 'ok' | 'missing' | 'ended' | 'lost' | 'held';

/** What a job that is queued anew has no more of its launches. */
export const NOT_LAUNCHED = {
  launches: [],
  journal: [],
  devices: [],
  config: null,
  budget_bytes: null,
  versions: null,
  notes: null,
  started_at: null,
} satisfies Partial<JobRecord>;

/** Job records: `{oomtune}:job:<id>`, with JSON fields except `state`. */
export class JobStore extends JobReader {
  /** `lostMs`: a host that has been silent for this long is lost. */
  constructor(
    redis: Redis,
    keys: Keys,
    private readonly lostMs = LOST_MS,
  ) {
    super(redis, keys);
  }

  /** Records a new job and announces it. Throws for an id that is taken, and OOMTUNE_LIMIT where `most` of its owner's jobs wait. */
  async create(record: JobRecord, most: number | null = null): Promise<void> {
    const checked = jobRecord.parse(record);
    const made = await this.#run('job/create', checked.job, [
      String(Date.parse(checked.submitted_at)),
      JSON.stringify(checked.owner),
      most ?? '',
      checked.options.notify && checked.environment ? OWED : '',
      JSON.stringify(newStep()),
      ...toFields(checked),
    ]);
    if (made === -1) throw tooManyWait(checked.owner, most ?? 0);
    if (made !== 1) throw new OomtuneError('OOMTUNE_INTERNAL', `There is a job ${record.job} already.`, 'Try again.');
  }

  /** Writes into a record if it may (an end is of this moment, unless the patch tells of another): `ended`: the job has ended; `lost`: another claim holds; `held`: it was put on hold. */
  async patch(id: string, patch: Partial<JobRecord>, claim = ''): Promise<PatchResult> {
    const { state = '', job: _job, ended_at, ...rest } = patch;
    return (await this.#run('job/patch', id, [claim, ended_at ?? now(), state, ...toFields(rest)])) as PatchResult;
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
    await this.note(read);
    if (outcome === 'claimed') await this.#run('job/undo-claim', job, [claim]);
    return { outcome: 'unreadable', record: null };
  }

  /** Writes back what a host answers for, where Redis has lost its record or stands as before; what took its place is kept aside. */
  async restore(backup: { host: string; claim: string; epoch: number; record: JobRecord }): Promise<Restored> {
    const { host, claim, epoch } = backup;
    const record = jobRecord.parse(backup.record);
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

  /** Whether the job is to be put into its queue now. */
  async unpend({ job, epoch }: Pick<StoredJob, 'job' | 'epoch'>, reason: string): Promise<boolean> {
    return (await this.#run('job/unpend', job, [epoch, JSON.stringify(reason)])) === 1;
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
    return (await this.#run('job/cancel', id, [now(), reason, this.lostMs])) as JobState;
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
      const args = [read, options, JSON.stringify(NO_DAEMON)];
      const done = (await this.#run('job/edit', id, args)) as JobState | 'missing' | 'ok' | 'changed';
      if (done !== 'changed') return done;
    }
  }

  async release(id: string): Promise<JobState | 'missing'> {
    return (await this.#run('job/release', id, [JSON.stringify(NO_DAEMON)])) as JobState;
  }

  /** `step`: given where the caller may have to ask again, as the answer did not come. */
  async retry(
    id: string,
    environment: SubmittedEnvironment | null,
    more: Partial<JobRecord> = {},
    step: string = newStep(),
  ): Promise<JobState | 'missing' | 'waiting'> {
    const anew: Partial<JobRecord> = {
      environment,
      reason: NO_DAEMON,
      failure: null,
      host: null,
      ...NOT_LAUNCHED,
      ended_at: null,
      exit_code: null,
      notification: null,
      ...more,
    };
    const args = [this.lostMs, environment === null ? '' : OWED, JSON.stringify(step), ...toFields(anew)];
    return (await this.#run('job/retry', id, args)) as JobState | 'missing' | 'waiting';
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

  /** Takes jobs back that were recorded and then could not be submitted. */
  async withdraw(ids: string[]): Promise<void> {
    const { jobs, live, pending, job } = this.keys;
    const multi = this.redis.multi();
    for (const id of ids) multi.zrem(jobs, id).zrem(live, id).srem(pending, id).hdel(this.keys.notify, id).del(job(id));
    await write(multi);
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
    const keys = [job(id), jobs, live, pending, events, wake, this.keys.host(''), hosts, this.keys.notify];
    return runScript(this.redis, script, keys, [id, ...args]);
  }
}

/** `more`: jobs that were to be submitted at once. */
export function tooManyWait(owner: string | null, most: number, more = 1): OomtuneError {
  return new OomtuneError(
    'OOMTUNE_LIMIT',
    `${owner ?? 'Nobody'} may have ${most} ${most === 1 ? 'job' : 'jobs'} that wait, and ${more === 1 ? 'has them already' : `${more} more would be too many`}.`,
    'Submit again once some of them have started; `oomtune status --users` shows what everybody may have.',
  );
}

const now = (): string => new Date().toISOString();
