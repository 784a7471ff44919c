import { complaint } from '../contract/fields.js';
import { JOB_SCHEMA, type JobRecord, jobRecord } from '../contract/job.js';

/** A job's record with the daemons' own fields. */
export interface StoredJob extends JobRecord {
  /** Rises with every release, retry and requeue: queue entries of an earlier epoch are void. */
  epoch: number;
  /** The host whose daemon answers for it now; null: none. */
  claimHost: string | null;
  claim: string | null;
  /** Since when it is to be cancelled; null: it is not. */
  cancelAsked: string | null;
}

/** The hash's fields: JSON, except `state`. */
export function toFields(record: Partial<JobRecord>): string[] {
  return Object.entries(record).flatMap(([name, value]) =>
    value === undefined ? [] : [name, name === 'state' ? String(value) : JSON.stringify(value)],
  );
}

/** A record that cannot be read. It is left alone, and nothing is decided on it. */
export interface UnreadableJob {
  job: string;
  why: string;
  /** Written by a version of oomtune that comes after this one. */
  newer: boolean;
}

export type FoundJob = { is: 'job'; job: StoredJob } | { is: 'missing' } | ({ is: 'unreadable' } & UnreadableJob);

/** Parses the hash of a record. */
export function fromFields(id: string, hash: Record<string, string>): Exclude<FoundJob, { is: 'missing' }> {
  const { state, epoch, claim, claim_host, cancel, ...fields } = hash;
  if (Number(fields.schema) > JOB_SCHEMA)
    return { is: 'unreadable', job: id, why: `written by a newer oomtune (schema ${fields.schema})`, newer: true };
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
