import type { Requirement } from '../contract/state.js';
import type { StoredJob } from '../store/index.js';
import { describe, type HostDevices, suits } from './routing.js';

/** Why a job in its queue has not been taken: no host can, or those that can are busy. `live`: all jobs that have not ended. */
export function waitingReason(requirement: Requirement, alive: HostDevices[], live: StoredJob[]): string {
  const names = (hosts: HostDevices[]): string =>
    hosts
      .map(({ host }) => host)
      .sort()
      .join(', ');
  if (requirement.host !== null && !alive.some(({ host }) => host === requirement.host)) {
    return `no daemon runs on ${requirement.host}; there are ${names(alive)}`;
  }
  const fitting = alive.filter((host) => suits(requirement, host));
  if (fitting.length === 0) return `no host has ${describe(requirement)}; there are ${names(alive)}`;
  const ready = fitting.filter(({ lacks }) => !lacks);
  if (ready.length === 0)
    return `no job is taken: ${fitting.map(({ host, lacks }) => `${host} lacks ${lacks}`).join('; ')}`;
  const busy = live.filter((job) => job.claimHost !== null && ready.some(({ host }) => host === job.claimHost));
  const [first, ...more] = busy.map(({ job }) => job);
  const by = first === undefined ? '' : `, busy with ${first}${more.length > 0 ? ` and ${more.length} more` : ''}`;
  return `waits in its queue for ${names(ready)}${by}`;
}
