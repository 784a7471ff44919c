import { formatBytes } from '../../common/size.js';
import type { PartSize } from '../../contract/http.js';
import type { MemoryBreakdown } from '../../contract/measurement.js';
import { PARTS } from '../../tuner/index.js';

export type Part = (typeof PARTS)[number];

export const PART_NAMES: Record<Part, string> = {
  parameters: 'parameters',
  gradients: 'gradients',
  optimizer_state: 'optimizer state',
  activations: 'activations',
  allocator_slack: 'allocator slack',
  context: 'context',
  rest: 'the rest',
};

/** The parts that are known and not nothing, in the order in which they are drawn. */
export function partsOf(memory: MemoryBreakdown): PartSize[] {
  return PARTS.flatMap((part) => {
    const bytes = memory[part];
    if (bytes === null || bytes === 0) return [];
    const slope = part === 'activations' ? memory.activations_per_sample : null;
    return [{ part, name: PART_NAMES[part], bytes, remark: slope === null ? '' : `${formatBytes(slope)} a sample` }];
  });
}
