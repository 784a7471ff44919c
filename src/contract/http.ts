import { z } from 'zod';
import { count, whole } from './fields.js';
import { holder } from './holder.js';
import { jobFacts, jobRecord, jobState } from './job.js';
import { curve, memoryBreakdown } from './measurement.js';
import { recommendation } from './recommendation.js';
import { rung, shownRung } from './rung.js';
import { memorySample } from './verbs.js';

/** What the dashboard's pages get, by `/api/…` and by event streams. Sizes in bytes, times in seconds. */

/** What a job does while it works; null: it does not, or nobody tells. */
const liveFigures = z.object({
  /** Optimizer steps that it has made. */
  step: z.number().nullable(),
  /** Samples a second over the last minute. */
  samples_per_s: z.number().nullable(),
  /** What it holds, and what it may hold, of the device that it uses most of. */
  memory_bytes: z.number().nullable(),
  budget_bytes: z.number().nullable(),
  /** Seconds that the longest of the last ten of its name took. */
  expected_s: z.number().nullable(),
});
export type LiveFigures = z.infer<typeof liveFigures>;

/** One job as a list shows it. */
const row = jobFacts.extend({
  ...liveFigures.shape,
  /** Its reason in one line: what the most telling of the devices that it waits for is held by. */
  summary: z.string().nullable(),
  /** Class of its failure, and the line that proves it. */
  failure: z.string().nullable(),
  evidence: z.string().nullable(),
  micro_batch: z.number().nullable(),
  accumulation: z.number().nullable(),
  priority: z.number(),
  /** It has been asked to end. */
  cancelling: z.boolean(),
});
export type Row = z.infer<typeof row>;

/** One probe on the ladder. */
const step = z.object({
  n: count,
  launch: count,
  ...rung.shape,
  /** The rung's name. */
  rung: z.string(),
  micro_batch: count,
  accumulation: count,
  outcome: z.string(),
  ambiguous: z.boolean(),
  phase: z.string().nullable(),
  peak_bytes: z.number().nullable(),
  step_s: z.number().nullable(),
  samples_per_s: z.number().nullable(),
  retries: z.number(),
  evidence: z.string().nullable(),
  why: z.string().nullable(),
});
export type ProbeStep = z.infer<typeof step>;

const partSize = z.object({
  part: z.enum(['parameters', 'gradients', 'optimizer_state', 'activations', 'allocator_slack', 'context', 'rest']),
  name: z.string(),
  bytes: z.number(),
  /** What a legend adds to it in brackets; empty: nothing. */
  remark: z.string(),
});
export type PartSize = z.infer<typeof partSize>;

/** A peak and its parts in the order of drawing, which sum to it. Bytes. */
const partedPeak = memoryBreakdown
  .pick({ micro_batch: true, accumulation: true, peak_bytes: true, peak_in: true })
  .extend({ parts: z.array(partSize) });
export type PartedPeak = z.infer<typeof partedPeak>;

const jobAction = z.enum(['cancel', 'hold', 'release', 'edit', 'retry']);
export type JobAction = z.infer<typeof jobAction>;

/** A job's page, without its memory over time and its log. */
const jobPage = jobFacts.extend(jobRecord.pick({ command: true, config: true, key: true }).shape).extend({
  failure: z
    .object({
      class: z.string(),
      evidence: z.string().nullable(),
      cause: z.string().nullable(),
      advice: z.string().nullable(),
    })
    .nullable(),
  /** Its reason in one line, as a list has it. */
  summary: z.string().nullable(),
  cwd: z.string(),
  priority: z.number(),
  /** From its start on; null: as long as it takes. */
  time_limit_s: z.number().nullable(),
  /** Its place among those that are queued, from 1 on; null: it is none of them. */
  position: z.number().nullable(),
  after: z.array(z.string()),
  /** The jobs that it waits for, or waited for; name and state are null where they are forgotten. */
  dependencies: z.array(
    z.object({
      job: z.string(),
      name: z.string().nullable(),
      state: jobState.nullable(),
      /** Or only have ended. */
      must_succeed: z.boolean(),
    }),
  ),
  /** The command that submits such a job again. */
  repeat: z.array(z.string()),
  figures: liveFigures,
  budget_bytes: z.number().nullable(),
  cancelling: z.boolean(),
  launches: z.array(
    z.object({
      launch: count,
      purpose: z.enum(['search', 'run']),
      micro_batch: count.nullable(),
      accumulation: count.nullable(),
    }),
  ),
  steps: z.array(step),
  curves: z.array(curve),
  /** What fills the memory at the micro-batch it names; null: no peak was measured. */
  memory: partedPeak.nullable(),
  recommendation: recommendation
    .pick({
      key: true,
      status: true,
      micro_batch: true,
      max_micro_batch: true,
      known_bad_micro_batch: true,
      accumulation: true,
      effective_batch: true,
      peak_bytes: true,
      budget_bytes: true,
      samples_per_s: true,
      verified_at: true,
    })
    .extend(shownRung.shape)
    .nullable(),
  actions: z.array(jobAction),
});
export type JobPage = z.infer<typeof jobPage>;

/** One device as the page shows it; null: unknown from here. */
const deviceView = z.object({
  host: z.string(),
  id: z.string(),
  uuid: z.string().nullable(),
  model: z.string(),
  total_bytes: z.number(),
  used_bytes: z.number().nullable(),
  reserved_bytes: z.number(),
  /** What one more job could reserve: nothing beside a job that has the device to itself. */
  free_bytes: z.number(),
  /** Per cent of the driver's last sample in which a kernel ran. */
  utilisation_pct: z.number().nullable(),
  fault: z.string().nullable(),
  note: z.string().nullable(),
  /** Reservations, by job; the name is null where its record is gone. */
  holders: z.array(holder.extend({ name: z.string().nullable() })),
  /** Who uses the memory, the largest first. */
  processes: z.array(z.object({ pid: z.number(), name: z.string(), used_bytes: z.number(), ours: z.boolean() })),
});
export type DeviceView = z.infer<typeof deviceView>;

const machineView = z.object({
  hosts: z.array(z.object({ host: z.string(), alive: z.boolean(), seen: z.string(), version: z.string().nullable() })),
  devices: z.array(deviceView),
});
export type MachineView = z.infer<typeof machineView>;

const schema = z.literal(1);

export const httpDocuments = {
  'http-session': z.object({ schema, host: z.string(), version: z.string() }),
  'http-job': jobPage.extend({ schema }),
  'http-machine': machineView.extend({ schema }),
  'http-action': z.object({
    schema,
    job: z.string(),
    state: jobState.nullable(),
    reason: z.string().nullable(),
  }),
} as const;

/** The events of `/api/stream`, by name. `full`: replaces all earlier data. */
export const streamEvents = {
  hello: z.object({ host: z.string(), version: z.string() }),
  redis: z.object({ up: z.boolean() }),
  jobs: z.object({ full: z.boolean(), rows: z.array(row), gone: z.array(z.string()) }),
  machine: machineView,
  /** Null: there is no such job. */
  job: jobPage.nullable(),
  memory: z.object({ full: z.boolean(), samples: z.array(memorySample).readonly() }),
  /** `again`: what was shown of the log is to be forgotten. `skipped`: bytes that were left out before it. */
  log: z.object({ launch: whole, text: z.string(), skipped: whole, again: z.boolean().optional() }),
} as const;
export type StreamEvents = { [E in keyof typeof streamEvents]: z.infer<(typeof streamEvents)[E]> };
