import { OomtuneError, usageError } from '../common/errors.js';
import type { JobRecord } from '../contract/job.js';
import type { Forgotten } from '../contract/verbs.js';
import { NOT_LAUNCHED, type Store, type StoredJob } from '../store/index.js';

/**
 * Gives up a dead host: its jobs are queued again while `--retries` are left, else they fail, and its leases are freed. If it
 * returns, it ends its copies first. Throws OOMTUNE_HOST_ALIVE or, for an unknown host, OOMTUNE_USAGE.
 */
export async function forgetHost(store: Store, host: string): Promise<Forgotten> {
  const known = await store.hosts.list();
  const jobs = (await store.jobs.live()).filter((job) => job.claimHost === host);
  const leases = (await store.leasing.list()).some((lease) => lease.host === host);
  if (!known.some((one) => one.host === host) && jobs.length === 0 && !leases) {
    const names = known.map((one) => one.host).sort();
    throw usageError(
      `There is no host "${host}".`,
      names.length === 0 ? 'No daemon has been heard on this Redis.' : `Known are ${names.join(', ')}.`,
    );
  }
  if (await store.hosts.isAlive(host)) throw stillAlive(host);
  const forgotten: Forgotten = { host, queued: [], ended: [], leases: [] };
  for (const job of jobs) {
    const { state, patch } = fate(job, host);
    const done = await store.jobs.forget(job, state, patch);
    if (done === 'alive') throw stillAlive(host);
    if (done === 'ok') (state === 'queued' ? forgotten.queued : forgotten.ended).push(job.job);
  }
  forgotten.leases = await store.leasing.forgetHost(host);
  if (!(await store.hosts.forget(host))) throw stillAlive(host);
  return forgotten;
}

/** A run that is lost with its host counts as a retry. */
function fate(job: StoredJob, host: string): { state: 'queued' | 'failed' | 'cancelled'; patch: Partial<JobRecord> } {
  if (job.cancelAsked !== null) return { state: 'cancelled', patch: { reason: null } };
  const runs = job.launches.filter(({ purpose }) => purpose === 'run').length;
  const left = job.options.retries - Math.max(0, runs - 1);
  if (runs > 0 && left <= 0) {
    const evidence = `It ran on ${host}, which was given up, and no retry was left.`;
    return { state: 'failed', patch: { reason: null, failure: { class: 'killed', evidence, fields: {} } } };
  }
  const options = runs > 0 ? { ...job.options, retries: left - 1 } : job.options;
  return { state: 'queued', patch: { ...NOT_LAUNCHED, options, reason: `${host} was given up: queued anew` } };
}

function stillAlive(host: string): OomtuneError {
  return new OomtuneError(
    'OOMTUNE_HOST_ALIVE',
    `The daemon of ${host} was heard within the last 20 seconds.`,
    'Stop it there (`oomtune daemon stop --kill` ends its jobs, too), or try again when it is silent.',
  );
}
