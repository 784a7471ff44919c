import { z } from 'zod';
import { absolute, bytes, count, pid, text } from './fields.js';
import { jobRecord } from './job.js';
import { exitRecord } from './launch.js';
import { probeRecord } from './measurement.js';

/** What goes over the socket of the daemon for all users of a machine, and between it and its agents. No public format. */

/** A line of JSON: a call, what is told of it meanwhile, that it is given up, or its end. */
export const channelMessage = z.union([
  z.object({ id: z.number().int(), call: z.string().max(100), args: z.array(z.unknown()).max(20) }),
  z.object({ id: z.number().int(), error: z.record(z.string(), z.unknown()) }),
  z.object({ id: z.number().int(), note: z.unknown(), is: z.literal('note') }),
  z.object({ id: z.number().int(), is: z.literal('abort') }),
  z.object({ id: z.number().int(), value: z.unknown() }),
]);
export type ChannelMessage = z.infer<typeof channelMessage>;

/** How many ended jobs a list is to hold. */
export const listWish = z.object({ ended: z.number().int().min(0).max(10_000).optional() }).optional();

/** A reservation that a client or an agent asks for: devices by uuid, whose figures the daemon takes from the driver itself. */
export const leaseWish = z.object({
  devices: z.array(z.string().max(256)).min(1).max(1024),
  count: z.number().int().min(1).max(1024),
  /** On each device; null: whole devices. */
  bytes: bytes.nullable(),
  share: z.boolean(),
  foreground: z.object({ verb: z.enum(['run', 'find-batch']), name: text(256) }).nullish(),
  priority: z.number().int().min(-1_000_000).max(1_000_000).optional(),
  lenient: z.boolean().optional(),
  needBytes: bytes.nullish(),
  lastsSeconds: z.number().positive().nullish(),
});
export type LeaseWish = z.infer<typeof leaseWish>;

/** Whose life a reservation stands for. */
export const attachedRun = z.object({ supervisorPid: pid, dir: absolute });

/** What an agent may write into the record of a job that it runs. */
export const agentPatch = jobRecord
  .pick({
    launches: true,
    journal: true,
    devices: true,
    config: true,
    cut: true,
    budget_bytes: true,
    versions: true,
    key: true,
    reason: true,
    host: true,
  })
  .extend({ state: z.enum(['searching', 'running']), started_at: jobRecord.shape.started_at })
  .partial();

const line = text(4096);
/** What an agent tells of a job while it runs. */
export const agentProgress = z.discriminatedUnion('type', [
  z.object({ type: z.literal('waiting'), reason: line }),
  z.object({ type: z.literal('launch'), launch: count, rung: z.null(), why: line }),
  z.object({ type: z.literal('life'), launch: count, life: count, why: line }),
  z.object({ type: z.literal('probing'), launch: count, probe: z.object({ micro_batch: count }) }),
  z.object({ type: z.literal('running'), watched: z.boolean() }),
  z.object({ type: z.literal('lasts'), record: probeRecord.nullable() }),
  z.object({ type: z.literal('probe'), record: probeRecord }),
  z.object({ type: z.literal('note'), text: line }),
]);

/** How a launch ended, as an agent tells it. */
export const agentExit = exitRecord.omit({ schema: true }).extend({ stuck: z.array(pid).max(10_000).optional() });

/** An error of an agent: of the kinds that the daemon treats differently. */
export const agentError = z.object({
  kind: z.enum(['known', 'let go', 'still running', 'time up', 'full disk', 'other']),
  code: text(64).optional(),
  message: text(65_536),
  remedy: text(65_536).optional(),
  exit: agentExit.optional(),
});
