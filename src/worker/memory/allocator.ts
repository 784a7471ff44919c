import type { KindName } from '../../contract/device-id.js';
import { KINDS } from '../../devices/index.js';

/** torch 2.9 added the second name, and still reads the first. */
const NAMES = ['PYTORCH_CUDA_ALLOC_CONF', 'PYTORCH_ALLOC_CONF'] as const;
const SETTING = 'expandable_segments:True';

/** Expandable segments hardly fragment. */
export const EXPANDABLE_SEGMENTS: Readonly<Record<string, string>> = Object.fromEntries(
  NAMES.map((name) => [name, SETTING]),
);

/** `on`: by the user's own setting. */
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

/** Since torch 2.1, but not in builds for ROCm. `2.4.1+cu121`; null: unknown. */
export function canExpand(torch: string | null): boolean {
  const [, major, minor] = /^(\d+)\.(\d+)/.exec(torch ?? '') ?? [];
  return major !== undefined && !/rocm|hip/i.test(torch ?? '') && Number(major) * 1000 + Number(minor) >= 2001;
}
