import { resolve } from 'node:path';
import type { JobOptions } from '../contract/options.js';
import type { FindBatchReport, RunReport } from '../contract/reports.js';
import type { JobSignal } from '../runtime/types.js';
import { hostName } from '../store/process-identity.js';
import { stemOfCommand } from '../worker/command/index.js';
import type { Records, WorkDeps, WorkRequest } from '../worker/types.js';
import type { Context } from './context.js';
import { ForegroundNotice, notifyTarget, toldOf } from './notify.js';

/** The worker's dependencies for foreground verbs; the daemon calls the same worker. */
export async function workDeps(
  context: Context,
  purpose: 'find-batch' | 'run',
  options: JobOptions,
  command: string[],
  notify?: unknown,
): Promise<{
  request: WorkRequest;
  deps: WorkDeps;
  around: <R extends RunReport | FindBatchReport>(work: () => Promise<R>) => Promise<R>;
}> {
  const [
    { createLog },
    { newJobId },
    { tidyHourly },
    { StandardInput },
    { ForegroundRecord },
    { ForegroundRecommendations },
    runtime,
  ] = await Promise.all([
    import('../common/log.js'),
    import('../store/job-id.js'),
    import('../daemon/retention.js'),
    import('../runtime/standard-input.js'),
    import('./foreground-record.js'),
    import('./foreground-recommendations.js'),
    context.runtime(),
  ]);
  context.signal.throwIfAborted();
  const log = createLog(purpose);
  const jobId = newJobId();
  const target = notifyTarget(notify);
  const name = options.name ?? stemOfCommand(command, options.cwd);
  const about = { job: jobId, name, host: hostName() };
  const record = new ForegroundRecord({ jobId, command, options }, about, context, besideRecord());
  const notice = target === null ? null : new ForegroundNotice(target, about, options, context);
  let records: Promise<Records> | null = null;
  const openRecords = async (): Promise<Records> => {
    const { recommendations: all, leasing, connection } = await context.store();
    const { signal } = context;
    const note = (text: string) => context.progress.show({ type: 'note', text });
    const recommendations = new ForegroundRecommendations({ all, signal, onRefused: connection.onRefused, note });
    return { recommendations, atOnce: recommendations.atOnce, leasing: recommendations.leasing(leasing) };
  };
  void tidyHourly(() => context.store(), log); // while the job works; it is not waited for
  return {
    request: {
      jobId,
      command,
      options,
      purpose,
      journal: [],
      launches: [],
      foreground: purpose === 'run',
      input: StandardInput.capture(),
      environment: process.env,
    },
    around: (work) => record.around(() => (notice === null ? work() : notice.around(work, toldOf))),
    deps: {
      runtime,
      records: () => {
        records ??= openRecords();
        return records;
      },
      signal: context.signal,
      progress: (event) => {
        context.progress.show(event);
        record.see(event);
        notice?.see(event);
      },
      ...(purpose === 'run' ? { onSignal: jobSignals() } : {}),
      persist: (patch) => record.persist(patch),
      log,
    },
  };
}

/** Where a job's script in Slurm wants the record, which is nothing of the job's. */
function besideRecord(): string | null {
  const { OOMTUNE_RECORD: path } = process.env;
  delete process.env.OOMTUNE_RECORD;
  return path ? resolve(path) : null;
}

/**
 * Takes SIGUSR1 and SIGUSR2 for the job: Node would open a debugger at the first, and end at the second. One that comes while no job is
 * heard of (it has only just begun, or is searched for) waits for it.
 */
function jobSignals(): NonNullable<WorkDeps['onSignal']> {
  let hearer: ((name: JobSignal) => void) | null = null;
  const waiting = new Set<JobSignal>();
  for (const name of ['SIGUSR1', 'SIGUSR2'] as const)
    process.on(name, () => {
      if (hearer === null) waiting.add(name);
      else hearer(name);
    });
  return (hear) => {
    hearer = hear;
    for (const name of waiting) hear(name);
    waiting.clear();
    return () => {
      hearer = null;
    };
  };
}
