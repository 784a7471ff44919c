import { basename } from 'node:path';
import { OomtuneError } from '../common/errors.js';
import { commandSchema, hostName, jobOptionsSchema, newJobId, type Store, type StoredJob } from '../store/index.js';
import type { JobOptions, JobRecord } from '../store/types.js';
import { jobEnvironment } from '../worker/environment.js';
import { forgetEnvironment, saveEnvironment } from './saved-environment.js';

export interface Submission {
  command: string[];
  options: JobOptions;
  /** The submitter's; what the allow-list and `--env` take of it goes into a private file of this host. */
  environment: Record<string, string | undefined>;
}

/**
 * Records a job; a daemon puts it into its queue. Returns the record.
 * Throws OOMTUNE_USAGE for what cannot run, OOMTUNE_NO_SUCH_JOB for an unknown `--after`.
 */
export async function submitJob(store: Store, { command, options, environment }: Submission): Promise<JobRecord> {
  const after = await Promise.all(options.after.map((name) => dependency(store, name)));
  const names = options.env.map((entry) => entry.split('=')[0] as string);
  const carriesValues = options.env.some((entry) => entry.includes('='));
  const here = hostName();
  if (carriesValues && options.host !== null && options.host !== here) {
    throw new OomtuneError(
      'OOMTUNE_USAGE',
      `The values of --env stay on ${here}, but --host asks for ${options.host}.`,
      `Name a file on ${options.host} by --env-file, or write --env NAME for a variable that its daemon has.`,
    );
  }
  const stored = {
    ...options,
    after,
    env: [...new Set(names)],
    host: carriesValues ? here : options.host,
  };
  const record: JobRecord = {
    schema: 1,
    job: newJobId(),
    name: options.name ?? nameOf(command),
    state: 'queued',
    reason: 'waits for a daemon',
    failure: null,
    command: check(commandSchema.safeParse(command), 'the command'),
    options: check(jobOptionsSchema.safeParse(stored), 'the options'),
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
  saveEnvironment(record.job, jobEnvironment({ ...options, envFile: null }, environment));
  try {
    await store.jobs.create(record);
  } catch (error) {
    forgetEnvironment(record.job);
    throw error;
  }
  return record;
}

async function dependency(store: Store, name: string): Promise<string> {
  const job: StoredJob | null = name === '@' ? await store.jobs.latest() : await store.jobs.get(name);
  if (job !== null) return job.job;
  throw new OomtuneError(
    'OOMTUNE_NO_SUCH_JOB',
    `There is no job "${name}" to come after.`,
    'See `oomtune status` for the jobs that there are.',
  );
}

/** `train` for `python -u src/train.py --lr 1`: what a person would call it. */
function nameOf(command: string[]): string {
  const script = command.slice(1).find((word) => /\.(py|sh|js|mjs|ts|rb|pl|lua|R)$/.test(word)) ?? command[0] ?? 'job';
  return (
    basename(script)
      .replace(/\.[A-Za-z]+$/, '')
      .slice(0, 100) || 'job'
  );
}

type Parsed<T> =
  | { success: true; data: T }
  | { success: false; error: { issues: { path: PropertyKey[]; message: string }[] } };

function check<T>(parsed: Parsed<T>, what: string): T {
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  throw new OomtuneError(
    'OOMTUNE_USAGE',
    `A daemon could not run ${what}: ${issue?.path.join('.') || what}: ${issue?.message ?? 'it cannot be read'}.`,
    'See `oomtune submit --help` for what it takes.',
  );
}
