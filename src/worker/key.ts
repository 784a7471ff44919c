import { hash } from 'node:crypto';
import { stateFolder } from '../common/home.js';
import { HOST, isHost } from '../contract/device-id.js';
import type { Device } from '../contract/launch.js';

const GIB = 1024 ** 3;
const MIB = 1024 ** 2;

/** `NVIDIA H200` → `nvidia-h200`; `cpu` for the host, whose memory does not depend on the processor. */
export function deviceSlug(device: Pick<Device, 'id' | 'model'>): string {
  if (isHost(device.id)) return HOST;
  return device.model
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-+|-+$/g, '');
}

/** Whole GiB (`24g`), below 1 GiB whole MiB (`300m`). */
export function budgetLabel(bytes: number): string {
  return bytes >= GIB ? `${Math.floor(bytes / GIB)}g` : `${Math.floor(bytes / MIB)}m`;
}

/** Key of a recommendation: `<name>:<gpu slug>:<budget>:<world>x`. */
export function configKey(
  name: string,
  device: Pick<Device, 'id' | 'model'>,
  budgetBytes: number,
  world: number,
): string {
  return `${name}:${deviceSlug(device)}:${budgetLabel(budgetBytes)}:${world}x`;
}

/** Key of what is recorded of a knob of the command's own, beside that of its batch: `<key>:<knob>`. */
export const knobKey = (key: string, knob: string): string => `${key}:${knob}`;

/** Holds a recommendation's copies of configuration files. */
export function appliedFolder(key: string): string {
  const plain = key.replace(/[^A-Za-z0-9._-]+/g, '_');
  // Names that differ in other letters alone have folders of their own.
  return stateFolder('applied', /^[A-Za-z0-9._:-]+$/.test(key) ? plain : `${plain}-${hash('sha256', key).slice(0, 8)}`);
}
