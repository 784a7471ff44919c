import type { JobOptions } from '../contract/options.js';
import type { WorkDeps, WorkRequest } from '../worker/types.js';
import type { Context } from './context.js';

/** The worker's dependencies for foreground verbs; the daemon calls the same worker. */
export async function workDeps(
  context: Context,
  purpose: 'find-batch' | 'run',
  options: JobOptions,
  command: string[],
): Promise<{ request: WorkRequest; deps: WorkDeps }> {
  const [{ createLog }, { newJobId }, { tidyHourly }, runtime] = await Promise.all([
    import('../common/log.js'),
    import('../store/job-id.js'),
    import('../daemon/retention.js'),
    context.runtime(),
  ]);
  context.signal.throwIfAborted();
  const log = createLog(purpose);
  void tidyHourly(() => context.store(), log); // while the job works; it is not waited for
  return {
    request: {
      jobId: newJobId(),
      command,
      options,
      purpose,
      journal: [],
      launches: [],
      foreground: purpose === 'run',
      environment: process.env,
    },
    deps: {
      runtime,
      records: () => context.store(),
      signal: context.signal,
      progress: (event) => context.progress.show(event),
      persist: async () => {}, // a foreground verb lives and dies with its terminal: there is no record to keep
      log,
    },
  };
}
