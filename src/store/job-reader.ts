import type { Redis } from 'ioredis';
import { complaint } from '../contract/fields.js';
import { JOB_SCHEMA, type JobRecord, jobRecord } from '../contract/job.js';
import type { Keys } from './keys.js';
import { refuse } from './refused.js';
import { readFields, readHashes, valueIn } from './replies.js';
import { runScript } from './scripts.js';

/** A job's record with what only daemons care for. */
export interface StoredJob extends JobRecord {
  /** Rises with every release, retry and requeue: queue entries of an earlier epoch are void. */
  epoch: number;
  /** The host whose daemon answers for it now; null: none. */
  claimHost: string | null;
  claim: string | null;
  /** Since when it is to be cancelled; null: it is not. */
  cancelAsked: string | null;
}

/** As the hash keeps it: JSON each, but `state`. */
export function toFields(record: Partial<JobRecord>): string[] {
  return Object.entries(record).flatMap(([name, value]) =>
    value === undefined ? [] : [name, name === 'state' ? String(value) : JSON.stringify(value)],
  );
}

/** A record that is there and cannot be used. It stays where it is: nothing is decided on it. */
export interface UnreadableJob {
  job: string;
  why: string;
  /** Written by a version of oomtune that comes after this one. */
  newer: boolean;
}

export type FoundJob = { is: 'job'; job: StoredJob } | { is: 'missing' } | ({ is: 'unreadable' } & UnreadableJob);

/** What the hash of a record says. */
export function fromFields(id: string, hash: Record<string, string>): Exclude<FoundJob, { is: 'missing' }> {
  const { state, epoch, claim, claim_host, cancel, ...fields } = hash;
  if (Number(fields.schema) > JOB_SCHEMA) {
    return { is: 'unreadable', job: id, why: `written by a newer oomtune (schema ${fields.schema})`, newer: true };
  }
  const wrong = (why: string) => ({ is: 'unreadable' as const, job: id, why, newer: false });
  const record: Record<string, unknown> = { state };
  for (const [name, value] of Object.entries(fields)) {
    try {
      record[name] = JSON.parse(value);
    } catch {
      return wrong(`${name}: it is no JSON`);
    }
  }
  const parsed = jobRecord.safeParse(record);
  if (!parsed.success) return wrong(complaint(parsed.error));
  if (parsed.data.job !== id) return wrong(`its id says ${parsed.data.job}`);
  return {
    is: 'job',
    job: {
      ...parsed.data,
      epoch: /^\d{1,15}$/.test(epoch ?? '') ? Number(epoch) : 1,
      claimHost: claim_host ?? null,
      claim: claim ?? null,
      cancelAsked: cancel ?? null,
    },
  };
}

/**
 * Reads jobs' records. One that is there and cannot be used (garbage, another type, a newer version's) is left where it is,
 * noted and told; it is read again the next time, and may be well by then.
 */
export class JobReader {
  constructor(
    private readonly redis: Redis,
    private readonly keys: Keys,
  ) {}

  /** In the order of the ids. Throws where Redis would not say of one: that is neither missing nor wrong. */
  async find(ids: string[]): Promise<FoundJob[]> {
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
  async readable(ids: string[]): Promise<StoredJob[]> {
    return (await this.find(ids)).flatMap((one) => (one.is === 'job' ? [one.job] : []));
  }

  async unreadable(ids: string[]): Promise<UnreadableJob[]> {
    return (await this.find(ids)).flatMap((one) =>
      one.is === 'unreadable' ? [{ job: one.job, why: one.why, newer: one.newer }] : [],
    );
  }

  /** Those that can be used of an index. It is written in one step with the records: an id without one is taken out of it. */
  async indexed(ids: string[]): Promise<StoredJob[]> {
    const all = await this.find(ids);
    const { job, live, pending } = this.keys;
    for (const [at, one] of all.entries()) {
      const id = ids[at] as string;
      if (one.is === 'missing') await runScript(this.redis, 'record/drop-missing', [job(id), live, pending], [id]);
    }
    return all.flatMap((one) => (one.is === 'job' ? [one.job] : []));
  }

  /** In the log once, and in `{oomtune}:refused`. */
  async note({ job, why, newer }: UnreadableJob): Promise<void> {
    if (!newer) await refuse(this.redis, this.keys, this.keys.job(job), why);
  }
}
