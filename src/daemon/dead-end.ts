import { ENDED_STATES, type JobRecord } from '../contract/job.js';
import type { Store } from '../store/index.js';

/** Why a job can never start, and what to do. */
export interface DeadEnd {
  dead: string;
  advice: string;
}

/** Of a job that is to come after the success of this one; null: that may succeed, or has. */
export function deadEndAfter({ job, state }: Pick<JobRecord, 'job' | 'state'>): DeadEnd | null {
  if (state === 'succeeded' || !ENDED_STATES.includes(state)) return null;
  return {
    dead: `${job}, which it was to come after, ended as ${state}`,
    advice: `\`oomtune retry ${job}\` first and then this one, or submit it with --after-any ${job}, which takes any end.`,
  };
}

/** The same of a job that has just been submitted; null: it has no such end yet. */
export async function deadEndOf(store: Store, { options }: Pick<JobRecord, 'options'>): Promise<DeadEnd | null> {
  for (const id of options.after) {
    const found = await store.jobs.find(id);
    const end = found.is === 'job' ? deadEndAfter(found.job) : null;
    if (end !== null) return end;
  }
  return null;
}
