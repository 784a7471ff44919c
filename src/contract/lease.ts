import { z } from 'zod';

/** What `{oomtune}:leases`, `{oomtune}:host:<name>` and `{oomtune}:memory:<job>` hold: state of ours, no public format. */

const identity = z.object({ pid: z.number().int(), start: z.string() });

/** A command that works in front of its terminal. */
const foreground = z.object({ verb: z.string(), name: z.string() });
export type Foreground = z.infer<typeof foreground>;

/** What its holder knows of a reservation, and can write back. */
export const leasePromise = z.object({
  owner: z.string(),
  host: z.string(),
  boot: z.string(),
  instance: z.string(),
  process: identity,
  devices: z.array(z.object({ uuid: z.string(), id: z.string() })),
  /** Null: the whole device. */
  bytes: z.number().nullable(),
  share: z.boolean(),
  supervisors: z.array(identity.extend({ dir: z.string() })),
  /** Owners who shared a device with this one at some time. */
  beside: z.array(z.string()),
  /** Null, absent: a job's. */
  foreground: foreground.nullish(),
});
export type LeasePromise = z.infer<typeof leasePromise>;

/** As Lua writes it: null is absent, and an empty list is `{}`. */
export const leaseText = leasePromise.extend({
  owner: z.string().optional(),
  bytes: z.number().nullish(),
  supervisors: leasePromise.shape.supervisors.or(z.object({})).nullish(),
  beside: leasePromise.shape.beside.or(z.object({})).nullish(),
  taken_at: z.number(),
  expires_at: z.number(),
});

/** One reservation as it stands in Redis. */
export interface LeaseRecord extends LeasePromise {
  taken_at: number;
  expires_at: number;
  /** As read: a lease is freed only if nobody changed it since. */
  text: string;
}

export type ForegroundLease = LeaseRecord & { foreground: Foreground };

/** What a daemon says about itself. */
export const hostInfo = z.object({
  host: z.string().max(256),
  /** Which daemon: changes with the home folder and the machine, not with a restart. */
  instance: z.string().max(256),
  pid: z.number().int(),
  version: z.string().max(64),
  devices: z.array(z.object({ id: z.string().max(64), model: z.string().max(256), total_bytes: z.number() })).max(1024),
  started_at: z.string().max(64),
  /** What keeps it from taking jobs; absent or null: nothing. */
  lacks: z.string().max(1024).nullish(),
});
export type HostInfo = z.infer<typeof hostInfo>;
