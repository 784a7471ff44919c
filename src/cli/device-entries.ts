import type { DeviceEntry } from '../contract/verbs.js';
import { reservedBy } from '../store/index.js';
import type { Context } from './context.js';

/** The devices of this machine with what jobs have reserved of them. */
export async function deviceEntries(context: Pick<Context, 'runtime' | 'store'>): Promise<DeviceEntry[]> {
  const [runtime, store] = await Promise.all([context.runtime(), context.store()]);
  const devices = await runtime.devices();
  await store.leasing.reap(devices); // what a run that was killed had reserved is nobody's
  const leases = await store.leasing.list();
  return devices.map(({ bus: _, ...device }) => {
    const here = leases.filter((lease) => lease.devices.some(({ uuid }) => uuid === device.uuid));
    return { ...device, ...reservedBy(here, device.total_bytes) };
  });
}
