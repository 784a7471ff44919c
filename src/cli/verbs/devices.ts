import { formatBytes } from '../../common/size.js';
import { plain } from '../../common/terminal.js';
import type { DeviceEntry } from '../../contract/verbs.js';
import { deviceEntries } from '../device-entries.js';
import type { Paint } from '../output.js';
import { severalOwners } from '../status-view.js';
import { table } from '../table.js';
import type { Verb } from '../verb.js';

export default (async (_invocation, context) => {
  const { out } = context;
  const entries = await deviceEntries(context);
  if (out.json) out.document('devices', { schema: 1, devices: entries });
  else out.data(renderDevices(entries, out.paint));
  return 0;
}) satisfies Verb;

function renderDevices(found: DeviceEntry[], paint: Paint): string {
  const devices = plain(found);
  const overview = table(
    devices,
    [
      { title: 'DEVICE', value: (device) => device.id },
      { title: 'MODEL', value: (device) => device.model, widest: 44, least: 12 },
      { title: 'TOTAL', value: (device) => formatBytes(device.total_bytes), align: 'right' },
      { title: 'USED', value: (device) => formatBytes(device.used_bytes), align: 'right' },
      { title: 'RESERVED', value: (device) => formatBytes(device.reserved_bytes), align: 'right' },
      { title: '', value: (device) => device.fault ?? device.note ?? '' },
    ],
    paint,
  );
  const ownerOf = new Map(devices.flatMap(({ holders }) => holders.map(({ job, owner }) => [job, owner])));
  const users = devices.flatMap((device) =>
    device.processes.map((process) => ({
      device: device.id,
      owner: ownerOf.get(process.job ?? '') ?? null,
      ...process,
    })),
  );
  if (users.length === 0) return overview;
  const holders = table(
    users.sort((a, b) => b.used_bytes - a.used_bytes).slice(0, 40),
    [
      { title: 'DEVICE', value: (row) => row.device },
      { title: 'PID', value: (row) => String(row.pid), align: 'right' },
      { title: 'USED', value: (row) => formatBytes(row.used_bytes), align: 'right' },
      ...(severalOwners(devices.flatMap(({ holders }) => holders))
        ? [{ title: 'OWNER', value: (row: (typeof users)[number]) => row.owner ?? '-', widest: 16, least: 5 }]
        : []),
      { title: 'OURS', value: (row) => (row.ours ? 'yes' : 'no') },
      { title: 'PROCESS', value: (row) => row.name, widest: 60, least: 16 },
    ],
    paint,
  );
  return `${overview}\n\n${holders}`;
}
