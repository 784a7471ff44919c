import type { KindName } from '../../contract/device-id.js';
import { KINDS } from '../../devices/index.js';

/** torch 2.9 has the second name, and reads the first as well. */
const NAMES = ['PYTORCH_CUDA_ALLOC_CONF', 'PYTORCH_ALLOC_CONF'] as const;
const SETTING = 'expandable_segments:True';

/** Gives torch's caching allocator segments that can grow, which lose next to nothing to fragments. */
export const EXPANDABLE_SEGMENTS: Readonly<Record<string, string>> = Object.fromEntries(
  NAMES.map((name) => [name, SETTING]),
);

/** Whether they may be turned on, are on by the user's own setting, or are neither. */
export type ExpandableSegments = 'possible' | 'on' | 'out of the question';

export function expandableSegments(
  kind: KindName,
  torch: string | null,
  environment: NodeJS.ProcessEnv,
): ExpandableSegments {
  const theirs = [...NAMES, 'PYTORCH_HIP_ALLOC_CONF'].flatMap((name) => environment[name] ?? []);
  if (theirs.some((value) => /expandable_segments\s*:\s*true/i.test(value))) return 'on';
  return KINDS[kind].cachingAllocator && theirs.length === 0 && canExpand(torch) ? 'possible' : 'out of the question';
}

/** They came with torch 2.1; builds for ROCm take no notice of them, or fail. `2.4.1+cu121`; null: unknown. */
export function canExpand(torch: string | null): boolean {
  const [, major, minor] = /^(\d+)\.(\d+)/.exec(torch ?? '') ?? [];
  return major !== undefined && !/rocm|hip/i.test(torch ?? '') && Number(major) * 1000 + Number(minor) >= 2001;
}
