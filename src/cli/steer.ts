import { namedJobs } from './jobs.js';
import type { Verb } from './program.js';
import { statusEntry } from './status-view.js';

/** cancel, hold and release: the same thing to each of the jobs that were named. All names are looked up first. */
export function steer(action: 'cancel' | 'hold' | 'release', done: string): Verb {
  return async ({ args }, context) => {
    const { out } = context;
    const store = await context.store();
    const jobs = await namedJobs(store, args);
    const { cancelJob, holdJob, releaseJob } = await import('../daemon/index.js');
    const act = { cancel: cancelJob, hold: holdJob, release: releaseJob }[action];
    for (const job of jobs) {
      await act(store, job.job);
      if (!out.json) out.note(`${job.job}  ${done}`);
    }
    if (out.json) {
      out.document({
        schema: 1,
        jobs: (
          await namedJobs(
            store,
            jobs.map((job) => job.job),
          )
        ).map(statusEntry),
      });
    }
    return 0;
  };
}
