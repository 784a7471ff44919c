import { z } from 'zod';

const identity = z.object({ pid: z.number().int(), start: z.string() });

const recordSchema = z.object({
  owner: z.string().optional(),
  host: z.string(),
  boot: z.string(),
  instance: z.string(),
  process: identity,
  devices: z.array(z.object({ uuid: z.string(), id: z.string() })),
  /** Null: the whole device. Absent in Lua's JSON. */
  bytes: z.number().nullish(),
  share: z.boolean(),
  supervisors: z
    .array(identity.extend({ dir: z.string() }))
    .or(z.object({}))
    .nullish(),
  beside: z.array(z.string()).or(z.object({})).nullish(),
  foreground: z.object({ verb: z.string(), name: z.string() }).nullish(),
  ends_at: z.number().nullish(),
  taken_at: z.number(),
  expires_at: z.number(),
});

export const promiseSchema = recordSchema.omit({ taken_at: true, expires_at: true }).extend({
  owner: z.string(),
  bytes: z.number().nullable(),
  supervisors: z.array(identity.extend({ dir: z.string() })),
  beside: z.array(z.string()),
});

/** A command that works in front of its terminal. */
export interface Foreground {
  verb: string;
  name: string;
}

/** What its holder knows of a reservation, and can write back. */
export interface LeasePromise {
  owner: string;
  host: string;
  boot: string;
  instance: string;
  process: { pid: number; start: string };
  devices: { uuid: string; id: string }[];
  /** Null: the whole device. */
  bytes: number | null;
  share: boolean;
  supervisors: { pid: number; start: string; dir: string }[];
  /** Owners who shared a device with this one at some time. */
  beside: string[];
  /** Null, absent: a job's. */
  foreground?: Foreground | null;
  /** When it ends at the latest, as far as that is known (ms). */
  ends_at?: number | null;
}

/** One reservation as it stands in Redis. */
export interface LeaseRecord extends LeasePromise {
  taken_at: number;
  expires_at: number;
  /** As read: a lease is freed only if nobody changed it since. */
  text: string;
}

export type ForegroundLease = LeaseRecord & { foreground: Foreground };

/** A lease as Redis has it; null for what cannot be read, which the next script that meets it sets aside. */
export function readLease(owner: string, text: string): LeaseRecord | null {
  try {
    const { supervisors, beside, bytes, ...record } = recordSchema.parse(JSON.parse(text));
    // Lua writes an empty list as {}
    const lists = {
      supervisors: Array.isArray(supervisors) ? supervisors : [],
      beside: Array.isArray(beside) ? beside : [],
    };
    return { ...record, ...lists, owner, bytes: bytes ?? null, text };
  } catch {
    return null;
  }
}
