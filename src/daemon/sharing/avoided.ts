import type { Device } from '../../contract/launch.js';
import { hostName, type Store, type StoredJob } from '../../store/index.js';
import { nameOf } from './names.js';

/** Jobs on these devices that are known to get more done by taking turns with this one. */
export async function avoided(store: Store, job: StoredJob, devices: Device[]): Promise<string[]> {
  const here = hostName();
  const leases = (await store.leasing.list()).filter((lease) => lease.pair && lease.host === here);
  const found = await Promise.all(
    leases.map(async ({ owner, devices: [held] }) => {
      const model = devices.find(({ uuid }) => uuid === held?.uuid)?.model;
      if (model === undefined || owner === job.job) return [];
      const other = await store.jobs.get(owner);
      const known = other === null ? null : await store.pairs.get(model, [nameOf(job), nameOf(other)]);
      return known?.verdict === 'apart' ? [owner] : [];
    }),
  );
  return found.flat();
}
