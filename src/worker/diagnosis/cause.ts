import { formatBytes } from '../../common/size.js';
import type { Diagnosis, MemoryPicture, MemoryReason } from '../types.js';
import type { Signals } from './signals.js';

/** Why there was too little memory; the order is that of what to look at first. */
export function reasonOf(picture: MemoryPicture | null, phase: Diagnosis['phase'], signals: Signals): MemoryReason {
  if (picture) {
    const { total_bytes: total, asked_bytes: asked, others_bytes: others, unallocated_bytes: unallocated } = picture;
    if (total !== null && asked !== null && asked > total) return 'asked';
    if (others !== null && total !== null && others > total * 0.15 && others > (asked ?? 0)) return 'neighbour';
    if (others !== null && total === null && others > 2 ** 30) return 'neighbour';
    if (unallocated !== null && asked !== null && unallocated >= asked && unallocated > (total ?? 0) * 0.05) {
      return 'fragmentation';
    }
  }
  if (signals.growth && signals.growth.bytesPerStep > 0) return 'leak';
  if (phase === 'load' || phase === 'eval' || phase === 'save') return phase;
  return 'batch';
}

/** One or two sentences: the figures that make the reason plain. */
export function causeOf(
  reason: MemoryReason,
  picture: MemoryPicture | null,
  phase: Diagnosis['phase'],
  signals: Signals,
): string {
  const asked = picture?.asked_bytes ? `${formatBytes(picture.asked_bytes)} more` : 'more';
  const total = picture?.total_bytes ? ` of ${formatBytes(picture.total_bytes)}` : '';
  switch (reason) {
    case 'asked':
      return `One request, ${formatBytes(picture?.asked_bytes ?? 0)}, is larger than the whole device (${formatBytes(picture?.total_bytes ?? 0)}): a wrong shape is more likely than a batch that is too large.`;
    case 'neighbour':
      return `Other processes hold ${formatBytes(picture?.others_bytes ?? 0)}${total} on the device${namesOf(picture)}; the job itself asked for ${asked}.`;
    case 'fragmentation':
      return `The allocator holds ${formatBytes(picture?.unallocated_bytes ?? 0)} that no tensor uses, but in pieces too small for the ${formatBytes(picture?.asked_bytes ?? 0)} asked for: memory is fragmented.`;
    case 'leak':
      return `Memory grew by ${formatBytes(signals.growth?.bytesPerStep ?? 0)} a step over ${signals.growth?.steps ?? 0} steps, until the device was full: losses or outputs are kept together with their graph, or gradients are never zeroed.`;
    case 'load':
      return `The device ran out of memory before the first step, while the model was loaded or built: it asked for ${asked}. No batch size will help.`;
    case 'eval':
      return `The device ran out of memory in evaluation, not in training: it asked for ${asked}.`;
    case 'save':
      return `The device ran out of memory while a checkpoint was saved: it asked for ${asked}.`;
    default:
      return `The device ran out of memory${phase === 'train' ? ' in a training step' : ''}: the job asked for ${asked}${total ? ` on a device${total}` : ''}.`;
  }
}

function namesOf(picture: MemoryPicture | null): string {
  const all = picture?.neighbours ?? [];
  if (all.length === 0) return '';
  const shown = all.slice(0, 4).map((p) => `pid ${p.pid}${p.name ? ` ${p.name}` : ''}: ${formatBytes(p.bytes)}`);
  return ` (${shown.join('; ')}${all.length > 4 ? `; ${all.length - 4} more` : ''})`;
}

/** The key of the advice that fits the reason. */
export const ADVICE: Record<MemoryReason, string> = {
  asked: 'asked-too-much',
  neighbour: 'neighbour',
  fragmentation: 'fragmentation',
  leak: 'leak',
  load: 'load',
  eval: 'eval',
  save: 'save',
  batch: 'smaller-batch',
};
