import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { systemText } from '../common/regular-file.js';

/** Regions of dmem.capacity ("drm/0000:17:00.0/vram0 85899345920"), if our cgroup delegates the controller to its children. */
export function dmemRegions(
  root = '/sys/fs/cgroup',
  membership = systemText('/proc/self/cgroup'),
): Map<string, string> {
  const regions = new Map<string, string>();
  if (!existsSync(join(root, 'dmem.capacity'))) return regions; // usual
  const own = /^0::(\/.*)$/m.exec(membership)?.[1];
  if (own === undefined) return regions;
  const handedOn = systemText(join(root, own, 'cgroup.subtree_control'))
    .trim()
    .split(/\s+/);
  if (!handedOn.includes('dmem')) return regions;
  for (const line of systemText(join(root, 'dmem.capacity')).split('\n')) {
    const [, region, bus] = /^(drm\/([0-9a-f:.]+)\/vram\d*) \d+$/.exec(line) ?? [];
    if (region !== undefined && bus !== undefined && !regions.has(bus)) regions.set(bus, region);
  }
  return regions;
}
