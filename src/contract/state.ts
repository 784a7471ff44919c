import { z } from 'zod';
import { KIND_NAMES } from './device-id.js';
import { hostLabels, jobId, whole } from './fields.js';

/** Leases, hosts, queues and memory over time in Redis: internal state, no public format. */

const identity = z.object({ pid: z.number().int(), start: z.string() });

/** A command in a terminal. */
const foreground = z.object({ verb: z.string(), name: z.string() });
export type Foreground = z.infer<typeof foreground>;

/** The holder's copy of a reservation, from which it can be restored. */
export const leasePromise = z.object({
  owner: z.string(),
  /** The user whose job or command it is; null, absent: a version before this one took it. */
  user: z.string().nullish(),
  host: z.string(),
  boot: z.string(),
  instance: z.string(),
  process: identity,
  devices: z.array(
    z.object({
      uuid: z.string(),
      id: z.string(),
      /** Bytes. */
      total: z.number().optional(),
      /** It is the host's memory. */
      host: z.boolean().optional(),
    }),
  ),
  /** Null: the whole device. */
  bytes: z.number().nullable(),
  share: z.boolean(),
  supervisors: z.array(identity.extend({ dir: z.string() })),
  /** Owners who shared a device with this one at some time. */
  beside: z.array(z.string()),
  /** Null, absent: a job's. */
  foreground: foreground.nullish(),
  /** When it ends at the latest, as far as that is known (ms). */
  ends_at: z.number().nullish(),
  /** Goes beside one other at most, as it is measured beside it; absent: beside as many as there is room for. */
  pair: z.boolean().nullish(),
});
export type LeasePromise = z.infer<typeof leasePromise>;

/** As Lua encodes it: null is absent, an empty list is `{}`. */
export const leaseText = leasePromise.extend({
  owner: z.string().optional(),
  bytes: z.number().nullish(),
  supervisors: leasePromise.shape.supervisors.or(z.object({})).nullish(),
  beside: leasePromise.shape.beside.or(z.object({})).nullish(),
  taken_at: z.number(),
  expires_at: z.number(),
});

/** A reservation in Redis. */
export interface LeaseRecord extends LeasePromise {
  taken_at: number;
  expires_at: number;
  /** As read: a lease is freed only if nobody changed it since. */
  text: string;
}

export type ForegroundLease = LeaseRecord & { foreground: Foreground };

/** Device-seconds that a user had used at a time (ms). */
export const usageEntry = z.object({ seconds: z.number(), at: z.number() });

/** What a daemon says about itself. */
export const hostInfo = z.object({
  host: z.string().max(256),
  /** Which daemon: changes with the home folder and the machine, not with a restart. */
  instance: z.string().max(256),
  pid: z.number().int(),
  version: z.string().max(64),
  devices: z.array(z.object({ id: z.string().max(64), model: z.string().max(256), total_bytes: z.number() })).max(1024),
  started_at: z.string().max(64),
  /** What its administrator says of it; absent: nothing. */
  labels: hostLabels.optional(),
  /** What keeps it from taking jobs; absent or null: nothing. */
  lacks: z.string().max(1024).nullish(),
});
export type HostInfo = z.infer<typeof hostInfo>;

/** What a job needs of its host: one queue for each distinct requirement. */
export const requirement = z.object({
  /** `any`: a GPU where there is one, else the host's memory. */
  kind: z.enum([...KIND_NAMES, 'any']),
  gpus: z.number().int().min(1).max(1024),
  /** Part of the model's name, lower case. */
  model: z.string().max(256).nullable(),
  host: z.string().max(256).nullable(),
  /** Labels that the host has to have; absent: none. */
  labels: hostLabels.optional(),
  /** `cuda:3`: this very device. */
  device: z.string().max(64).nullable(),
  /** What one device has to have at least, GiB. */
  gib: z.number().int().min(0),
  /** The share of a GPU that it needs: `all`, `24g`, `80%`; the same within a queue, so that none blocks one that could start. */
  takes: z.string().max(64).default(''),
  /** Whose jobs: each user has queues of his own. Absent: those that an admin put before or behind all others. */
  owner: z.string().max(256).optional(),
});
export type Requirement = z.infer<typeof requirement>;

/** What was measured of two jobs side by side. */
export const pairVerdict = z.object({
  verdict: z.enum(['together', 'apart', 'unmeasured']),
  /** What both got done side by side, by what they would taking turns; null: not measured. */
  gain: z.number().nullable(),
  rounds: whole,
  at: z.string().max(64),
});
export type PairVerdict = z.infer<typeof pairVerdict>;

/** An entry of a queue; void if the job's record has another `epoch`. */
export const ticket = z.object({ job: jobId, epoch: z.number().int().min(1) });
export type Ticket = z.infer<typeof ticket>;

/** A job's memory over time. Times are differences without names, so that a sample takes about 16 bytes. */
export const storedTrace = z.object({
  schema: z.literal(1),
  /** The try that it belongs to: a retry begins a new one. */
  epoch: whole,
  budget_bytes: whole.nullable(),
  /** Each sample stands for so many looks. */
  every: whole.min(1),
  begin: whole,
  samples: z.array(z.tuple([whole, whole, whole])).max(5000),
});
