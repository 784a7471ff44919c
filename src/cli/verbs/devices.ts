import type { DeviceEntry } from '../../contract/verbs.js';
import { deviceEntry, renderDevices } from '../devices-view.js';
import type { Verb } from '../verb.js';

const devicesVerb: Verb = async (_invocation, context) => {
  const { out } = context;
  const [runtime, store] = await Promise.all([context.runtime(), context.store()]);
  const devices = await runtime.devices();
  await store.leasing.reap(devices); // what a run that was killed had reserved is nobody's
  const reserved = await store.reservations(devices);
  const entries: DeviceEntry[] = devices.map((device) => ({
    ...device,
    reserved_bytes: reserved.get(device.uuid) ?? 0,
  }));
  if (out.json) out.document('devices', { schema: 1, devices: entries.map(deviceEntry) });
  else out.data(renderDevices(entries, out.paint));
  return 0;
};

export default devicesVerb;
