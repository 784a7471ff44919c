import { complaint, jobRecord } from './schemas.js';
import type { JobRecord } from './types.js';

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

/** The job, null where there is none, or what is wrong with it. */
export function fromFields(id: string, hash: Record<string, string>): StoredJob | string | null {
  const { state, epoch, claim, claim_host, cancel, ...fields } = hash;
  if (Object.keys(hash).length === 0) return null;
  const record: Record<string, unknown> = { state };
  for (const [name, value] of Object.entries(fields)) {
    try {
      record[name] = JSON.parse(value);
    } catch {
      return `${name}: it is no JSON`;
    }
  }
  const parsed = jobRecord.safeParse(record);
  if (!parsed.success) return complaint(parsed.error);
  if (parsed.data.job !== id) return `its id says ${parsed.data.job}`;
  return {
    ...parsed.data,
    epoch: /^\d{1,15}$/.test(epoch ?? '') ? Number(epoch) : 1,
    claimHost: claim_host ?? null,
    claim: claim ?? null,
    cancelAsked: cancel ?? null,
  };
}
