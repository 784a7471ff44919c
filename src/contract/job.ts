import { z } from 'zod';
import { failure } from './failure.js';
import { absolute, bytes, command, count, jobId, text, time, whole, word } from './fields.js';
import { observation, probeRecord } from './measurement.js';
import { jobOptions } from './options.js';
import { rehearsal } from './rehearsal.js';
import { config, cut } from './rung.js';
import { slurmPlace } from './slurm.js';

export const jobState = z.enum([
  'queued',
  'held',
  'searching',
  'running',
  'succeeded',
  'failed',
  'cancelled',
  'exhausted',
  'timeout',
]);
export type JobState = z.infer<typeof jobState>;

/** States in which nothing more will happen. */
export const ENDED_STATES: readonly JobState[] = ['succeeded', 'failed', 'cancelled', 'exhausted', 'timeout'];

const names = z.array(text(4096)).max(1000);

/** What a job's record says of its submitter's environment, never a value. */
export const submittedEnvironment = z.object({
  /** Where it is kept until the job ends. */
  host: text(256),
  /** Names its file, as a part of a path; null: it was retried by somebody who had none to give. */
  file: z
    .string()
    .regex(/^[0-9a-f]{16}$/)
    .nullable(),
  /** Names that a host other than this one would do without. */
  bound: names,
  /** Those that the job did do without where it was launched. */
  withheld: names,
});
export type SubmittedEnvironment = z.infer<typeof submittedEnvironment>;

/** The schema that this version writes; it leaves records with a higher number alone. */
export const JOB_SCHEMA = 1;

/** What `--share auto` found of a job beside another one. */
export const sharing = z.object({
  /** The other one. */
  job: jobId,
  name: text(256),
  /** `apart`: the later one stood still until the other had ended. `unmeasured`: their steps could not be seen; both ran. */
  verdict: z.enum(['measuring', 'together', 'apart', 'unmeasured']),
  /** What both got done side by side, by what they would taking turns; null: not measured. */
  gain: z.number().nullable(),
});
export type Sharing = z.infer<typeof sharing>;

const MOST_NOTES = 32;
const LONGEST_NOTE = 2000;

/** A record's notes with one more; the same ones where it is among them. */
export function withNote(notes: readonly string[], note: string): readonly string[] {
  const kept = note.slice(0, LONGEST_NOTE);
  return notes.includes(kept) ? notes : [...notes, kept].slice(-MOST_NOTES);
}

/** What a job's last launch ran with; null: not told (a program that is no Python), or there is none. */
export const jobVersions = z.object({
  oomtune: text(100),
  node: text(100),
  python: text(100).nullable(),
  torch: text(100).nullable(),
  device_model: text(256),
  driver: text(100).nullable(),
});
export type JobVersions = z.infer<typeof jobVersions>;

/** A job's record in Redis (`{oomtune}:job:<id>`), which every verb reads. */
export const jobRecord = z.object({
  schema: z.literal(JOB_SCHEMA),
  job: jobId,
  name: text(256),
  /** The user who submitted it; null: by a version that did not ask. */
  owner: word.nullable().default(null),
  /** The number of that account, where one daemon serves several users; null, absent: jobs run as whoever runs the daemon. */
  uid: whole.nullish(),
  state: jobState,
  /** Why it waits or where it stands, for a person; null when there is nothing to say. */
  reason: text(65_536).nullable(),
  failure: failure.nullable(),
  command,
  options: jobOptions,
  environment: submittedEnvironment.nullish(),
  host: text(256).nullable(),
  devices: z.array(text(64)).max(1024),
  config: config.nullable(),
  /** Where the run's batches are cut into micro-batches; null or absent: they are not. */
  cut: cut.nullish(),
  /** Its budget on one device; null or absent: nothing was launched, or by a version that did not note it. */
  budget_bytes: bytes.nullish(),
  /** Null or absent: nothing was launched, or by a version that did not note it. */
  versions: jobVersions.nullish(),
  /** Key of the recommendation that it uses or made. */
  key: text(512).nullable(),
  /** Launch folders in order, on `host`. Written before the launch. */
  launches: z
    .array(
      z.object({
        launch: count,
        dir: absolute,
        purpose: z.enum(['search', 'run']),
        config: config.nullable(),
        /** Why the job was launched once more; absent: it was the first time, or by a version that did not note it. */
        why: text(1000).optional(),
      }),
    )
    .max(100_000),
  /** What the tuner was told, in order: replayed after a crash. */
  journal: z.array(observation).max(100_000),
  /** What people were told meanwhile, the latest of it; null or absent: nothing, or by a version that did not keep it. */
  notes: z.array(text(LONGEST_NOTE)).max(MOST_NOTES).nullish(),
  /** With `--probe-eval`: what a rehearsal of the job has shown; null or absent: there was none. */
  rehearsal: rehearsal.nullish(),
  submitted_at: time,
  started_at: time.nullable(),
  ended_at: time.nullable(),
  exit_code: z.number().int().nullable(),
  /** Whether its processes are to stand still (`pause`, `resume`); null or absent: it was never asked. */
  pause: z.enum(['on', 'off']).nullish(),
  /** Why somebody could not be told of it, with `--notify`; null or absent: nothing went wrong. */
  notification: text(1000).nullish(),
  /** With `--share auto`, the last job that it was beside; null or absent: none. */
  sharing: sharing.nullish(),
  /** Where Slurm runs it instead of a daemon; null or absent: a daemon does. */
  slurm: slurmPlace.nullish(),
});
export type JobRecord = z.infer<typeof jobRecord>;

/** What `run` and `find-batch` leave in the folder of their launches (`job.json`), for `explain`. */
export const foregroundRecord = z.object({
  /** Whose it is: with its start time (clock ticks since boot) for good. */
  process: z.object({ pid: whole, start_time: z.number().int() }),
  job: jobRecord,
});
export type ForegroundRecord = z.infer<typeof foregroundRecord>;

/** What every view of jobs shows as it stands in the record: `--json`, the dashboard's list, and a job's page. */
export const jobFacts = jobRecord.pick({
  job: true,
  name: true,
  owner: true,
  state: true,
  reason: true,
  host: true,
  devices: true,
  submitted_at: true,
  started_at: true,
  ended_at: true,
  exit_code: true,
});
const FACTS = Object.keys(jobFacts.shape) as (keyof typeof jobFacts.shape)[];

export function factsOf(job: JobRecord): z.infer<typeof jobFacts> {
  return Object.fromEntries(FACTS.map((name) => [name, job[name]])) as z.infer<typeof jobFacts>;
}

/** An entry of the stream `{oomtune}:events`; values that are no strings are JSON there, null is empty. */
export const oomtuneEvent = z.discriminatedUnion('type', [
  z.object({
    type: z.literal('job'),
    job: jobId,
    key: z.string().nullable(),
    state: jobState,
    reason: z.string().nullable(),
  }),
  z.object({ type: z.literal('probe'), job: jobId, key: z.string().nullable(), probe: probeRecord }),
  z.object({
    type: z.literal('config'),
    key: z.string(),
    job: z.string().nullable(),
    status: z.enum(['verified', 'demoted']),
  }),
  z.object({
    type: z.literal('lease'),
    job: z.string(),
    key: z.null(),
    device: z.string(),
    owner: z.string(),
    bytes: z.number(),
    action: z.enum(['taken', 'freed']),
  }),
]);
export type OomtuneEvent = z.infer<typeof oomtuneEvent>;

/** In the place of another user's command. */
export const HIDDEN = '(not shown)';

/** A job as somebody sees it who may not read what it is and does. */
export function isHidden({ command }: Pick<JobRecord, 'command'>): boolean {
  return command.length === 1 && command[0] === HIDDEN;
}
