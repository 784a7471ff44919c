import { OomtuneError, usageError } from '../../common/errors.js';
import type { JobRecord } from '../../contract/job.js';
import { withheldNote } from '../../daemon/withheld.js';
import { hostName, isRefusal, type NamedJob, type Store } from '../../store/index.js';
import { knobNames } from '../../worker/command/placeholders.js';
import { findProgram } from '../../worker/command/program.js';
import { nothingRecorded } from '../../worker/knob/nothing-recorded.js';
import { slurmOptions, toSlurm } from '../cluster/slurm.js';
import type { Context } from '../context.js';
import { asOomtuneError, renderError } from '../errors.js';
import { toJobOptions } from '../job-options.js';
import { sayWhich } from '../jobs.js';
import { withNotify } from '../notify.js';
import { agreed, canAsk } from '../question.js';
import { sayStarted } from '../running.js';
import { commandOf, sweepOf } from '../sweep.js';
import type { Verb } from '../verb.js';

export default (async ({ options, command }, context) => {
  const { out } = context;
  const sweep = sweepOf(options.array, options.sweep, command);
  const members = sweep?.tasks.map((task) => ({ ...task, command: commandOf(command, task) })) ?? [];
  const first = members[0]?.command ?? command;
  const jobOptions = toJobOptions(options, first);
  // Fails now, not after hours in the queue; but if the job may go to another host, only that host can check.
  if (jobOptions.host === null && jobOptions.gpuModel === null) {
    const { preflight } = await import('../../worker/command/torch.js');
    await preflight(first, jobOptions, process.env);
  }
  if (findProgram(first, jobOptions.cwd).piped)
    throw usageError(
      'A job in the queue has no stdin to read its script from.',
      'Save the script in a file, and name that in the command.',
    );
  const cluster = slurmOptions(options);
  if (cluster !== null && (await context.system()) !== null) {
    throw usageError(
      'The daemon of this machine runs its jobs by itself.',
      'Set OOMTUNE_HOME to a folder of yours that the nodes see, to submit through Slurm.',
    );
  }
  const store = await context.store();
  await checkKnobs(store, first);
  const { submitJob, submitSweep, submitToSlurm, sweepName } = await import('../../daemon/index.js');
  const onNamed = (name: string, found: NamedJob): void => sayWhich(name, found, out);
  const submission = { command, options: jobOptions, environment: withNotify(process.env, options.notify), onNamed };
  const group = sweep === null ? null : { members, atOnce: sweep.atOnce };
  const named = sweep === null ? jobOptions : { ...jobOptions, name: sweepName(command, jobOptions) };
  const jobs =
    cluster !== null
      ? await submitToSlurm(store, submission, group, await toSlurm(store, first, named, cluster, out))
      : sweep === null
        ? [await submitJob(store, submission)]
        : await submitSweep(store, submission, { members, atOnce: sweep.atOnce });
  const job = jobs[0] as JobRecord;
  const elsewhere = job.options.host !== null && job.options.host !== job.environment?.host;
  const bound = elsewhere ? withheldNote(job.environment, job.environment?.bound) : null;
  if (bound !== null) out.note(bound);
  const ids = jobs.map((one) => one.job);
  if (out.json) out.document('submit', { schema: 1, job: job.job, ...(sweep === null ? {} : { jobs: ids }) });
  else out.data(ids.join('\n'));
  if (cluster !== null) return 0;
  await sayWhatIsAhead(store, job, context).catch((error: unknown) => {
    if (!isRefusal(error) && !(error instanceof OomtuneError)) throw error;
    const { message, remedy } = asOomtuneError(error, 'submit');
    out.note(`note: It is queued, but what is ahead of it cannot be read: ${message} ${remedy}`);
  });
  return 0;
}) satisfies Verb;

/** What will keep it from starting. It is queued and told by now: what cannot be read of this is no failure. */
async function sayWhatIsAhead(store: Store, job: JobRecord, context: Context): Promise<void> {
  const { out } = context;
  const { host, notify } = job.options;
  const { deadEndOf } = await import('../../daemon/index.js');
  const end = await deadEndOf(store, job);
  if (end !== null) out.note(`note: ${end.dead}: it fails when a daemon takes it. ${end.advice}`);
  if (notify) await sayWhoTells(store, out);
  const idle = await nobodyRuns(store, host);
  if (idle === null) return;
  out.note(`note: ${idle}`);
  if ((host === null || host === hostName()) && !out.json && canAsk())
    context.afterwards.push(() => offerDaemon(store, context));
}

/** A value of the command's own that no search has found is none that a job could find: said now, not after hours in the queue. */
async function checkKnobs(store: Store, command: string[]): Promise<void> {
  const names = knobNames(command);
  if (names.size === 0) return;
  const recorded = new Set((await store.recommendations.knobs()).map(({ knob }) => knob?.name));
  for (const name of names) if (!recorded.has(name)) throw nothingRecorded(name, command);
}

/** Whom to tell is known on this host alone. */
async function sayWhoTells(store: Store, out: Context['out']): Promise<void> {
  const hosts = (await store.hosts.list()).filter(({ alive }) => alive).map(({ host }) => host);
  if (hosts.length === 0 || hosts.includes(hostName())) return;
  out.note(`note: nobody is told of it unless a daemon runs on ${hostName()} too: whom to tell stays there.`);
}

/** Nothing of it changes what became of the job: it is queued. */
async function offerDaemon(store: Store, { out, signal }: Context): Promise<void> {
  if (!(await agreed('Start a daemon on this machine now?', signal))) return;
  const { startDaemon } = await import('../../daemon/index.js');
  try {
    sayStarted(out, await startDaemon(store));
  } catch (error) {
    renderError(asOomtuneError(error, 'daemon start'), out);
  }
}

/** Why nothing will start it yet; null: a daemon takes jobs. */
async function nobodyRuns(store: Store, host: string | null): Promise<string | null> {
  const { lives } = await import('../../daemon/index.js');
  const hosts = await store.hosts.list();
  if (hosts.some((one) => lives(one) && (host === null || one.host === host))) return null;
  return host === null
    ? 'no daemon runs: the job waits until one is started with `oomtune daemon start`.'
    : `no daemon runs on ${host}: the job waits until one is started there with \`oomtune daemon start\`.`;
}
