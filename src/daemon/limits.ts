import { OomtuneError } from '../common/errors.js';
import { isHost } from '../contract/device-id.js';
import type { JobOptions } from '../contract/options.js';
import { fairShare, limitsOf, type Store, tooManyWait } from '../store/index.js';

/** Whether this user's priorities count across all users. */
export const isAdmin = (user: string): boolean => fairShare().admins.includes(user);

/** Jobs of this user that may wait; null: any number. */
export const mostWaiting = (owner: string | null): number | null => limitsOf(fairShare(), owner).queued;

/** Throws OOMTUNE_LIMIT for what the owner may never have, or where `more` jobs would be too many that wait. */
export async function checkLimits(
  store: Store,
  owner: string | null,
  { gpus, device }: Pick<JobOptions, 'gpus' | 'device'>,
  more: number,
): Promise<void> {
  const limits = limitsOf(fairShare(), owner);
  if (limits.gpus !== null && gpus > limits.gpus && !isHost(device)) {
    throw new OomtuneError(
      'OOMTUNE_LIMIT',
      `${owner} may have ${limits.gpus} ${limits.gpus === 1 ? 'GPU' : 'GPUs'} at a time, and the job asks for ${gpus}.`,
      'Ask for fewer by --gpus, or ask who runs the machine for more (fair-share.yaml).',
    );
  }
  if (limits.queued === null) return;
  const waiting = (await store.jobs.byOwner()).get(owner ?? '')?.waiting ?? 0;
  if (waiting + more > limits.queued) throw tooManyWait(owner, limits.queued, more);
}
