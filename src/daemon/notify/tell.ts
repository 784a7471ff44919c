import type { Notification } from '../../contract/notification.js';
import type { StoredJob } from '../../store/index.js';
import { LaunchEnvironment } from '../launch-environment.js';
import { savedNotify } from '../saved-environment.js';
import { deliver } from './deliver.js';

/** Tells of a job by its submitter's wish, in the submitter's environment. Returns why it could not; null: it was told. */
export async function tellOf(job: StoredJob, event: Notification): Promise<string | null> {
  const target = savedNotify(job.job, job.environment);
  if (target === null) return 'whom to tell is not known any more: it was retried where OOMTUNE_NOTIFY is not set';
  const environment = new LaunchEnvironment(job).environment();
  return deliver({ target, environment, cwd: job.options.cwd }, event);
}
