import type { UserShare } from '../contract/verbs.js';
import { fairShare, limitsOf, type Store } from '../store/index.js';

/** What each user has used lately, has now and may have: who has used least first. Users without a job, a device and any usage are left out. */
export async function userShares(store: Pick<Store, 'usage' | 'jobs' | 'leasing'>): Promise<UserShare[]> {
  const [used, jobs, leases] = await Promise.all([store.usage.list(), store.jobs.byOwner(), store.leasing.list()]);
  const devices = new Map<string, Set<string>>();
  for (const { user, devices: held } of leases) {
    const mine = devices.get(user ?? '') ?? new Set();
    for (const { uuid, host } of held) if (!host) mine.add(uuid);
    devices.set(user ?? '', mine);
  }
  const users = new Set([...used.keys(), ...jobs.keys(), ...devices.keys()].filter((user) => user !== ''));
  const all = [...used.values()].reduce((sum, seconds) => sum + seconds, 0);
  return [...users]
    .map((user) => {
      const seconds = used.get(user) ?? 0;
      const limits = limitsOf(fairShare(), user);
      return {
        user,
        device_seconds: Math.round(seconds * 10) / 10,
        share: all > 0 ? Math.round((seconds / all) * 10_000) / 10_000 : 0,
        gpus: devices.get(user)?.size ?? 0,
        gpus_limit: limits.gpus,
        working: jobs.get(user)?.working ?? 0,
        waiting: jobs.get(user)?.waiting ?? 0,
        waiting_limit: limits.queued,
      };
    })
    .sort((a, b) => a.device_seconds - b.device_seconds || (a.user < b.user ? -1 : 1));
}
