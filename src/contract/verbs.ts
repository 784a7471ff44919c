import { z } from 'zod';
import { diagnosis } from './diagnosis.js';
import { estimateReport } from './estimate.js';
import { failure } from './failure.js';
import { bytes, count, text, time } from './fields.js';
import { holder } from './holder.js';
import { jobFacts, jobRecord, jobVersions, sharing } from './job.js';
import { device } from './launch.js';
import { probeRecord } from './measurement.js';
import { recommendation } from './recommendation.js';
import { findBatchReport, memoryReport } from './reports.js';
import { cut, shownConfig } from './rung.js';

/** The verbs' documents for `--json`. Later versions may add fields, but remove or change none. */

const schema = z.literal(1);
const strings = z.array(z.string());

const statusEntry = jobFacts.extend({
  failure: failure.nullable(),
  command: strings,
  priority: z.number(),
  /** Words that its submitter gave it with `--tag`. */
  tags: strings,
  /** Its processes are stopped, by `pause`. */
  paused: z.boolean(),
  /** With `--share auto`: the last job that it was beside, and whether that is worth it; null: none. */
  sharing: sharing.nullable(),
  /** Seconds from its first launch on; null: as long as it takes. */
  time_limit_s: z.number().nullable(),
  config: shownConfig.nullable(),
  /** Where Slurm runs it: its number there (`123`, `123_4`; null until it has one); null: a daemon does. */
  slurm: z.object({ cluster: z.string(), job: z.string().nullable(), partition: z.string().nullable() }).nullable(),
  cut: cut.nullable(),
  key: z.string().nullable(),
  /** What fills the device's memory, as in `find-batch --json`; null: no peak was measured. */
  memory: memoryReport.partial({ curve: true }).nullable(),
});
export type StatusEntry = z.infer<typeof statusEntry>;

const foregroundEntry = z.object({
  job: z.string(),
  /** `run` or `find-batch`. */
  verb: z.string(),
  name: z.string(),
  owner: z.string().nullable(),
  host: z.string(),
  pid: z.number().int(),
  devices: strings,
  /** On each device; null: the whole of it. */
  budget_bytes: z.number().nullable(),
  started_at: time,
});
export type ForegroundEntry = z.infer<typeof foregroundEntry>;

/** What a user has of the devices, and may have. */
const userShare = z.object({
  user: z.string(),
  /** Used lately: those of a half-life ago count half. What is held counts a minute ahead. */
  device_seconds: z.number(),
  /** Its part of what all have used, from 0 to 1. */
  share: z.number(),
  /** On which the user has something now. */
  gpus: z.number().int(),
  /** Null: any number. */
  gpus_limit: z.number().int().nullable(),
  /** Jobs that are searched or run. */
  working: z.number().int(),
  /** Jobs that are queued or held. */
  waiting: z.number().int(),
  waiting_limit: z.number().int().nullable(),
});
export type UserShare = z.infer<typeof userShare>;

const jobs = z.object({ schema, jobs: z.array(statusEntry) });
const job = z.object({ schema, job: z.string() });
const stopped = z.object({ schema, stopped: z.boolean() });

const deviceEntry = device.omit({ bus: true }).extend({
  /** Reserved by jobs of every host and user on this Redis. */
  reserved_bytes: bytes,
  holders: z.array(holder),
});
export type DeviceEntry = z.infer<typeof deviceEntry>;

/** A check of `doctor`: what it found and, if need be, what to do. `failed`: something will not work. */
const finding = z.object({
  check: z.string(),
  status: z.enum(['ok', 'warning', 'failed']),
  found: z.string(),
  remedy: z.string().nullable(),
});
export type Finding = z.infer<typeof finding>;

const versions = z.object({
  oomtune: z.string(),
  node: z.string(),
  addon: z.string().nullable(),
  supervisor: z.string().nullable(),
  hook: z.string().nullable(),
  driver: z.string().nullable(),
});
export type Versions = z.infer<typeof versions>;

/** Nothing in it tells whose machine it is. */
const bugReport = z.object({
  schema,
  versions,
  system: z.object({
    /** Operating system, processor and libc. */
    platform: z.string(),
    kernel: z.string(),
    memory_bytes: bytes,
    devices: z.array(z.object({ id: z.string(), model: z.string(), total_bytes: bytes })),
  }),
  /** `found` is null where it names users, hosts, jobs or servers. */
  checks: z.array(finding.omit({ remedy: true, found: true }).extend({ found: z.string().nullable() })),
  /** Names of variables that are set. */
  variables: strings,
});
export type BugReport = z.infer<typeof bugReport>;

const daemonStatus = z.object({
  running: z.boolean(),
  pid: z.number().int().nullable(),
  host: z.string(),
  version: z.string().nullable(),
  redis: z.string(),
  started_at: z.string().nullable(),
  /** Address of the dashboard; null: it is off. */
  dashboard: z.string().nullable(),
  /** Why there is none although there was to be one; null: nothing is wrong. */
  dashboard_fault: z.string().nullable(),
  /** Jobs that have not ended, on all hosts. */
  jobs: z.number().int(),
  /** What keeps it from taking jobs; null: nothing. */
  lacks: z.string().nullable(),
});
export type DaemonStatus = z.infer<typeof daemonStatus>;

const redisStatus = z.object({
  running: z.boolean(),
  url: z.string(),
  embedded: z.boolean(),
  pid: z.number().int().nullable(),
  version: z.string().nullable(),
  used_bytes: z.number().nullable(),
  /** Folder of the embedded Redis; null for one by URL. */
  folder: z.string().nullable(),
});
export type RedisStatus = z.infer<typeof redisStatus>;

/** Memory of one job at one moment. */
export const memorySample = z.object({
  /** ms since the epoch. */
  at: z.number(),
  launch: z.number(),
  /** Everything counted, on the device that holds most. */
  bytes: z.number(),
});
export type MemorySample = z.infer<typeof memorySample>;

const recommendations = z.object({ schema, recommendations: z.array(recommendation) });

/** What became of a forgotten host's jobs, by id, and whose leases were freed. */
const forgotten = z.object({ host: z.string(), queued: strings, ended: strings, leases: strings });
export type Forgotten = z.infer<typeof forgotten>;

export const verbDocuments = {
  'find-batch': findBatchReport,
  estimate: estimateReport,
  submit: job.extend({
    /** Of a sweep or an array: all of them. */
    jobs: strings.optional(),
  }),
  retry: job,
  status: jobs.extend({
    foreground: z.array(foregroundEntry),
    /** Records that are there and cannot be used. */
    unreadable: z.array(z.object({ job: z.string(), why: z.string(), newer: z.boolean() })),
  }),
  'status-users': z.object({ schema, half_life_s: z.number(), users: z.array(userShare) }),
  top: z.object({
    schema,
    devices: z.array(deviceEntry),
    jobs: z.array(statusEntry),
    foreground: z.array(foregroundEntry),
  }),
  wait: jobs,
  cancel: jobs,
  hold: jobs,
  release: jobs,
  pause: jobs,
  resume: jobs,
  edit: jobs,
  explain: statusEntry.extend({
    schema,
    folder: z.string(),
    /** The options that it was given, as words of the command line; of variables only the names. */
    options: strings,
    /** On one device; null: it is not known. */
    budget_bytes: bytes.nullable(),
    versions: jobVersions.nullable(),
    /** What people were told meanwhile, the latest of it. */
    notes: strings,
    launches: jobRecord.shape.launches,
    probes: z.array(probeRecord),
    recommendation: recommendation.nullable(),
    memory_over_time: z
      .object({ budget_bytes: bytes.nullable(), samples: z.array(memorySample).readonly() })
      .nullable(),
  }),
  'explain-recommendation': recommendations,
  recommend: recommendations,
  'recommend-apply': z.object({
    schema,
    key: z.string(),
    config: shownConfig,
    argv: strings,
    env: z.record(z.string(), z.string()),
  }),
  'recommend-format': z.object({ schema, key: z.string(), format: z.string(), text: z.string() }),
  manifest: z.object({
    schema,
    /** The configuration that it is sized by; null: none is recorded. */
    key: z.string().nullable(),
    /** A Job of Kubernetes' batch/v1. */
    manifest: z.record(z.string(), z.unknown()),
  }),
  logs: z.object({
    schema,
    logs: z.array(z.object({ job: z.string(), launch: count.nullable(), log: z.string() })),
  }),
  diagnose: diagnosis,
  devices: z.object({ schema, devices: z.array(deviceEntry) }),
  doctor: z.object({ schema, ok: z.boolean(), checks: z.array(finding) }),
  'doctor-report': bugReport,
  'daemon-start': daemonStatus.extend({ schema }),
  'daemon-status': daemonStatus.extend({ schema }),
  'daemon-stop': stopped,
  'daemon-forget': forgotten.extend({ schema }),
  /** `done`: a line for each step; empty with `--print`. */
  'daemon-install': z.object({ schema, unit: z.string(), done: strings }),
  'redis-url': z.object({ schema, url: z.string() }),
  'redis-status': redisStatus.extend({ schema }),
  'redis-stop': stopped,
  dashboard: z.object({ schema, url: z.string(), address: z.string() }),
  completion: z.object({ schema, shell: z.enum(['bash', 'zsh', 'fish']), script: text(10_000_000) }),
  version: z.object({ schema, versions, platform: z.string() }),
} as const;

export type VerbDocuments = { [V in keyof typeof verbDocuments]: z.infer<(typeof verbDocuments)[V]> };
