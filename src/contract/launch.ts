import { z } from 'zod';
import { pid, whole } from './fields.js';

/** Devices, and a launch seen from outside of the job: its ledger and how it ended. */

const deviceProcess = z.object({
  pid: z.number().int(),
  name: z.string(),
  used_bytes: z.number(),
  /** Launched by the oomtune of this home: another user's, or one with other state, has a Redis of its own. */
  ours: z.boolean(),
  /** The job that it belongs to, of whatever home; null: none, or that cannot be told. */
  job: z.string().nullable(),
});
export type DeviceProcess = z.infer<typeof deviceProcess>;

/** A limit besides oomtune's: the kernel's `dmem`, `mps` (each process by itself), `mig` (this part of a GPU), or none. */
const firstPartyLimit = z.enum(['dmem', 'mps', 'mig', 'none']);
export type FirstPartyLimit = z.infer<typeof firstPartyLimit>;

export const device = z.object({
  /** `cuda:N` or `cpu`. */
  id: z.string(),
  /** NVML's uuid; `cpu:<machine id>` for the host. */
  uuid: z.string(),
  model: z.string(),
  total_bytes: z.number(),
  used_bytes: z.number(),
  /** Per cent of the driver's last sample in which a kernel ran; null here and below: the driver does not tell. */
  utilisation_pct: z.number().nullable().default(null),
  /** Degrees Celsius. */
  temperature_c: z.number().nullable().default(null),
  /** Watts. */
  power_w: z.number().nullable().default(null),
  processes: z.array(deviceProcess),
  /** Why the figures are less than whole (no per-process figures in a container, …) or the device is broken; null: nothing. */
  note: z.string().nullable(),
  fault: z.string().nullable(),
  driver: z.string().nullable(),
  /** PCI bus id as the kernel writes it; null for the host. */
  bus: z.string().nullable(),
  /** What the driver tells of memory here: what each `process` holds, or (as in a container) only the whole `device`. */
  figures: z.enum(['process', 'device']),
  first_party_limit: firstPartyLimit,
});
export type Device = z.infer<typeof device>;

export const refusal = z.object({
  pid: z.number().int(),
  /** `posix_memalign`, `cuMemAlloc_v2`, … */
  api: z.string(),
  size_bytes: z.number(),
  live_bytes: z.number(),
  budget_bytes: z.number(),
  by: z.enum(['budget', 'driver']),
  device: z.string(),
  /** ISO 8601. */
  at: z.string(),
});

export const ledgerReading = z.object({
  devices: z.array(
    z.object({
      device: z.string(),
      live_bytes: z.number(),
      peak_bytes: z.number(),
      overhead_bytes: z.number(),
      budget_bytes: z.number().nullable(),
      /** Whose figures told the overhead: each `process`'s, or the whole `device`'s; null: nothing was measured. */
      measured_by: z.enum(['process', 'device']).nullable(),
    }),
  ),
  /** Total number of refused calls; `refusals` holds the latest. */
  refused: z.number(),
  refusals: z.array(refusal),
  /** Memory was seen that the hooks did not count. */
  blind: z.boolean(),
});
export type LedgerReading = z.infer<typeof ledgerReading>;

/** supervisor.json: who owns the launch. */
export const supervisorRecord = z.object({
  schema: z.literal(1),
  pid,
  start_time: whole,
  job_pid: pid.nullable(),
  job_start_time: whole.nullable(),
  /** Folder of the launch's own cgroup, where one could be made. */
  cgroup: z.string().startsWith('/sys/fs/cgroup/').nullable().default(null),
  boot_id: z.string(),
  started_at: z.string(),
  /** 0: none. */
  timeout_ms: whole.default(0),
  grace_ms: whole.default(10_000),
  version: z.string(),
});
export type SupervisorRecord = z.infer<typeof supervisorRecord>;

/** exit.json: how a launch ended, as its supervisor recorded it. */
export const exitRecord = z.object({
  schema: z.literal(1),
  /** Exit status of the job; null if a signal ended it. */
  code: z.number().int().min(0).max(255).nullable(),
  /** `SIGKILL`, …; null if it exited. */
  signal: z.string().nullable(),
  /** Why the supervisor ended it, if it did. */
  ended_by: z.enum(['job', 'timeout', 'cancel', 'start-failed', 'supervisor-lost']),
  /** errno text when the command could not be started. */
  error: z.string().nullable(),
  /** The cgroup's oom_kill counter rose, or the kernel log names the job; null: cannot be told here. */
  host_oom: z.boolean().nullable(),
  started_at: z.string(),
  ended_at: z.string(),
  /** Descendants that had to be reaped or killed after the main process ended. */
  stragglers: whole,
  /** The most that any one process of the job had in memory; absent: not known. */
  resident_bytes: whole.optional(),
  /** Output that was not kept, as the disk of its log was full; absent: none. */
  lost_bytes: whole.optional(),
});

/** An end of which only the reason is known. */
export function unseenEnd(
  endedBy: z.infer<typeof exitRecord>['ended_by'],
  startedAt: string,
  error: string | null = null,
): Omit<Exit, 'ledger'> {
  const none = { code: null, signal: null, host_oom: null, stragglers: 0 };
  return { ...none, ended_by: endedBy, error, started_at: startedAt, ended_at: new Date().toISOString() };
}

/** The supervisor's record with the ledger's last reading. */
export interface Exit extends Omit<z.infer<typeof exitRecord>, 'schema'> {
  ledger: LedgerReading | null;
  /** Processes that were killed and are still there, as the kernel holds on to them: `error` names them. Absent: nothing is left. */
  stuck?: number[];
}
