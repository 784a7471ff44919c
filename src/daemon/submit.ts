import { hash } from 'node:crypto';
import type { ZodType } from 'zod';
import { OomtuneError, usageError } from '../common/errors.js';
import { refusal } from '../common/refusal.js';
import { ownUser } from '../common/user.js';
import { command as commandSchema, complaint } from '../contract/fields.js';
import type { JobRecord } from '../contract/job.js';
import { envNames, type JobOptions, jobOptions as jobOptionsSchema, type SweepMember } from '../contract/options.js';
import type { SlurmPlace } from '../contract/slurm.js';
import { NO_DAEMON } from '../contract/waiting.js';
import { hostName, type NamedJob, namedJob, newJobId, type Store } from '../store/index.js';
import { jobEnvironment } from '../worker/command/environment.js';
import { stemOfCommand } from '../worker/command/index.js';
import { checkLimits, isAdmin, mostWaiting } from './limits.js';
import {
  forgetEnvironment,
  forgetUnsent,
  isAnswerLost,
  saveEnvironment,
  sweepEnvironments,
} from './saved-environment.js';

/** One of several jobs that are submitted together. */
export interface Member {
  command: string[];
  /** The end of its name. */
  suffix: string;
  /** For `--array`. */
  index: number | null;
}

export interface Submission {
  command: string[];
  options: JobOptions;
  /** The submitter's, kept in a private file of this host until the job ends. */
  environment: NodeJS.ProcessEnv;
  /** The submitter; absent: who runs this process. */
  owner?: string;
  /** The priority counts across users. Absent: if fair-share.yaml names the owner among the admins. */
  admin?: boolean;
  /** Gets the job that each name of `--after` and `--after-any` stands for. */
  onNamed?: (name: string, found: NamedJob) => void;
  /** Where each member stands that Slurm is to run; absent: a daemon runs it. */
  place?: (member: number) => SlurmPlace;
}

/** The name that all jobs of a sweep have for their recommendation. */
export function sweepName(command: string[], { name, cwd }: Pick<JobOptions, 'name' | 'cwd'>): string {
  if (name !== null) return name;
  const digest = hash('sha256', JSON.stringify([cwd, command]));
  return `${stemOfCommand(command, cwd)}-${digest.slice(0, 8)}`;
}

/** Records a job for each of the members, which have one name for their recommendation. Throws as `submitJob`. */
export async function submitSweep(
  store: Store,
  submission: Submission,
  { members, atOnce }: { members: Member[]; atOnce: number | null },
): Promise<JobRecord[]> {
  const { command, options } = submission;
  const sweep = newJobId().replace('j-', 's-');
  const base = options.name ?? stemOfCommand(command, options.cwd);
  const named = { ...options, name: sweepName(command, options) };
  const record = await recorder(store, { ...submission, options: named }, members.length);
  const records: JobRecord[] = [];
  for (const [member, { command, suffix, index }] of members.entries()) {
    const name = `${base}-${suffix}`;
    const label = name.length > 100 ? `${base}-${member}` : name;
    records.push(
      await record(command, label, { sweep, member, atOnce, index }).catch(async (error: unknown) => {
        throw await takenBack(store, records, error);
      }),
    );
  }
  return records;
}

/** A sweep is submitted whole: what was queued of it is cancelled. The error, which names what could not be. */
async function takenBack(store: Store, records: JobRecord[], error: unknown): Promise<unknown> {
  const left: string[] = [];
  for (const { job, environment, options } of records) {
    const state = await store.jobs.cancel(job).catch(() => null); // what refused the next refuses this as well
    if (state === null) left.push(job);
    if (state === 'cancelled' && !options.notify) forgetEnvironment(job, environment);
  }
  const known = error instanceof OomtuneError ? error : refusal(error, null);
  if (left.length === 0 || known === null) return error;
  const queued = `Queued before that, and not to be cancelled either: ${left.join(', ')}.`;
  return new OomtuneError(known.code, `${known.message} ${queued}`, known.remedy, { cause: error });
}

/** Records a job and returns its record; a daemon queues it. Throws OOMTUNE_USAGE, or OOMTUNE_NO_SUCH_JOB for `--after`. */
export async function submitJob(store: Store, submission: Submission): Promise<JobRecord> {
  const { command, options } = submission;
  const record = await recorder(store, submission);
  return record(command, options.name ?? stemOfCommand(command, options.cwd));
}

type Recorder = (command: string[], name: string, sweep?: SweepMember) => Promise<JobRecord>;

/** What all jobs of a submission have in common is looked up and checked once. */
async function recorder(
  store: Store,
  {
    options,
    environment,
    owner = ownUser(),
    admin = isAdmin(owner),
    onNamed = () => {},
    place,
  }: Omit<Submission, 'command'>,
  jobs = 1,
): Promise<Recorder> {
  if (place === undefined) await checkLimits(store, owner, options, jobs); // Slurm has limits of its own
  const idsOf = async (names: string[]): Promise<string[]> => {
    const found = await Promise.all(names.map((name) => namedJob(store.jobs, name)));
    for (const [at, one] of found.entries()) onNamed(names[at] as string, one);
    return found.map(({ job }) => job.job);
  };
  const after = await idsOf(options.after);
  const afterAny = await idsOf(options.afterAny ?? []);
  const carriesValues = options.env.some((entry) => entry.includes('='));
  const here = hostName();
  if (place === undefined && carriesValues && options.host !== null && options.host !== here) {
    throw usageError(
      `The values of --env stay on ${here}, but --host asks for ${options.host}.`,
      `Name a file on ${options.host} by --env-file, or write --env NAME for a variable that its daemon has.`,
    );
  }
  const stored = {
    ...options,
    ...(admin && options.priority !== 0 ? { acrossUsers: true } : {}),
    after,
    ...(afterAny.length === 0 ? {} : { afterAny }),
    env: envNames(options.env),
    host: carriesValues && place === undefined ? here : options.host,
  };
  await sweepEnvironments(store, () => false); // a host that only submits has no daemon that would
  const variables = jobEnvironment({ ...options, envFile: null }, environment);
  return async (command, name, sweep) => {
    const job = newJobId();
    const record: JobRecord = {
      schema: 1,
      job,
      name,
      owner,
      reason: place === undefined ? NO_DAEMON : 'is being given to Slurm',
      command: check(commandSchema, command, 'the command'),
      options: check(jobOptionsSchema, sweep === undefined ? stored : { ...stored, sweep }, 'the options'),
      // Slurm keeps the environment of what it is given by itself
      environment: place === undefined ? saveEnvironment(store, job, variables, environment.OOMTUNE_NOTIFY) : null,
      ...(place === undefined ? {} : { slurm: place(sweep?.member ?? 0) }),
      ...notBegun(),
    };
    try {
      await store.jobs.create(record, place === undefined ? mostWaiting(owner) : null);
    } catch (error) {
      forgetUnsent(error, job, record.environment);
      throw isAnswerLost(error) ? mayBeQueued(job, error) : error;
    }
    return record;
  };
}

/** Who does not know the id submits again what may run already. */
function mayBeQueued(job: string, error: OomtuneError): OomtuneError {
  const remedy = `\`oomtune status ${job}\` tells once it answers: submit again only what it does not know. ${error.remedy}`;
  return new OomtuneError(error.code, `${error.message} A job may be queued as ${job}.`, remedy, { cause: error });
}

function check<T>(schema: ZodType<T>, value: unknown, what: string): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw usageError(
    `A daemon could not run ${what}: ${complaint(parsed.error, what)}.`,
    'See `oomtune submit --help` for what it takes.',
  );
}

/** What the record of a job that is submitted now says of its run. */
export function notBegun() {
  return {
    state: 'queued' as const,
    failure: null,
    host: null,
    devices: [],
    config: null,
    key: null,
    launches: [],
    journal: [],
    submitted_at: new Date().toISOString(),
    started_at: null,
    ended_at: null,
    exit_code: null,
  };
}
