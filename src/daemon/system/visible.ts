import { OomtuneError } from '../../common/errors.js';
import { HIDDEN } from '../../contract/job.js';
import { DEFAULT_OPTIONS } from '../../contract/options.js';
import type { LeaseRecord } from '../../contract/state.js';
import { noSuchJob, type StoredJob } from '../../store/index.js';
import type { Peer } from './peer.js';

/** Jobs are told apart by the account's number: a name may be given to somebody else one day. */
const owns = (peer: Pick<Peer, 'uid'>, job: Pick<StoredJob, 'uid'>): boolean => job.uid === peer.uid;

/** May see all of a job and steer it. */
export const maySteer = (peer: Pick<Peer, 'uid' | 'admin'>, job: Pick<StoredJob, 'uid'>): boolean =>
  peer.admin || owns(peer, job);

/** Throws OOMTUNE_NO_SUCH_JOB, or OOMTUNE_NOT_PERMITTED for another's job. */
export function checkMaySteer(peer: Peer, id: string, job: StoredJob | null): asserts job is StoredJob {
  if (job === null) throw noSuchJob(`There is no job "${id}".`);
  if (maySteer(peer, job)) return;
  throw new OomtuneError(
    'OOMTUNE_NOT_PERMITTED',
    `${id} is a job of ${job.owner ?? 'another user'}.`,
    'Its owner and the administrators of oomtune on this machine can do that.',
  );
}

/** A job as this user may see it: of another's what runs where and since when, and nothing of what it is or does. */
export function visibleJob(peer: Peer, job: StoredJob): StoredJob {
  const shown = { ...job, claim: null };
  if (maySteer(peer, job)) return shown;
  const { name, priority, acrossUsers, gpus, budget, share, exclusive, retries, timeSeconds } = job.options;
  return {
    ...shown,
    reason: job.state === 'queued' || job.state === 'held' ? job.reason : null,
    failure: job.failure && { class: job.failure.class, evidence: null, fields: {} },
    command: [HIDDEN],
    options: {
      ...DEFAULT_OPTIONS,
      cwd: '/',
      name,
      priority,
      acrossUsers,
      gpus,
      budget,
      share,
      exclusive,
      retries,
      timeSeconds,
    },
    environment: null,
    notification: null,
    notes: null,
    versions: null,
    launches: [],
    journal: [],
  };
}

/** A reservation as this user may see it: of another's whose it is and how much, not the folders and processes behind it. */
export function visibleLease<L extends LeaseRecord>(peer: Peer, lease: L): L {
  if (peer.admin || lease.user === peer.name) return { ...lease, text: '' };
  const process = { pid: 0, start: '0' };
  return {
    ...lease,
    text: '',
    process,
    supervisors: [],
    ...(lease.foreground == null ? {} : { foreground: { verb: lease.foreground.verb, name: HIDDEN } }),
  };
}

export const noSuchReservation = (): OomtuneError =>
  new OomtuneError(
    'OOMTUNE_NOT_PERMITTED',
    'This reservation is not yours, or its name is in use.',
    'Run the command again.',
  );
