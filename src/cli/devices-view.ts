import { formatBytes } from '../common/size.js';
import { plain } from '../common/terminal.js';
import type { DeviceEntry } from '../contract/verbs.js';
import type { Paint } from './output.js';
import { table } from './table.js';

/** One device of `devices --json`. */
export function deviceEntry(device: DeviceEntry) {
  const { id, uuid, model, total_bytes, used_bytes, reserved_bytes, processes, note, fault, driver } = device;
  const { figures, first_party_limit } = device;
  const told = { processes, figures, note, fault, driver, first_party_limit };
  return { id, uuid, model, total_bytes, used_bytes, reserved_bytes, ...told };
}

export function renderDevices(found: DeviceEntry[], paint: Paint): string {
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
    (text) => paint('bold', text),
  );
  const held = devices.flatMap((device) => device.processes.map((process) => ({ device: device.id, ...process })));
  if (held.length === 0) return overview;
  const holders = table(
    held.sort((a, b) => b.used_bytes - a.used_bytes).slice(0, 40),
    [
      { title: 'DEVICE', value: (row) => row.device },
      { title: 'PID', value: (row) => String(row.pid), align: 'right' },
      { title: 'USED', value: (row) => formatBytes(row.used_bytes), align: 'right' },
      { title: 'OURS', value: (row) => (row.ours ? 'yes' : 'no') },
      { title: 'PROCESS', value: (row) => row.name, widest: 60, least: 16 },
    ],
    (text) => paint('bold', text),
  );
  return `${overview}\n\n${holders}`;
}
