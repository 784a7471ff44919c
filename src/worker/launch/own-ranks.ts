import { isHost } from '../../contract/device-id.js';
import type { Hello } from '../../contract/hook.js';
import type { Target } from '../target.js';
import type { WorkDeps } from '../types.js';

const told = new WeakSet<Target>();

/** Says, once, that a script makes more ranks itself than its command tells of, so that an effective batch is not that of all of them. */
export function tellOwnRanks(
  target: Target,
  { world_size: ranks }: Hello,
  { progress }: Pick<WorkDeps, 'progress'>,
): void {
  const { plan, worldSize, memory } = target;
  if (plan.program.worldSize !== null || ranks <= worldSize || told.has(target)) return;
  told.add(target);
  const remedy = isHost(memory.device.id) ? '' : ` --gpus ${ranks} counts them all.`;
  progress({
    type: 'note',
    text: `The script trains in ${ranks} ranks that it starts itself: batches, and the effective batch, are those of ${worldSize === 1 ? 'one of them' : `${worldSize} of them`}.${remedy}`,
  });
}
