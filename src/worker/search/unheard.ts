import { formatBytes } from '../../common/size.js';
import { isHost, type KindName } from '../../contract/device-id.js';
import { type Diagnosis, NO_FIGURES } from '../../contract/diagnosis.js';
import type { Exit } from '../../contract/launch.js';

/**
 * What to say of a process that ended with exit code 0 although memory was refused to it; null: nothing was. On the host only: allocators
 * of GPUs give back what they cache and ask again, and XLA tries smaller blocks, so that a refusal there tells nothing.
 */
export function unheardRefusal(exit: Exit, kind: KindName): string | null {
  const refused = exit.ledger?.refused ?? 0;
  if (!isHost(kind) || refused === 0 || exit.code !== 0 || exit.ended_by !== 'job') return null;
  const size = exit.ledger?.refusals.at(-1)?.size_bytes;
  const last = size === undefined ? '' : `, the last time of ${formatBytes(size)}`;
  const times = refused === 1 ? 'once' : `${refused} times`;
  return `Memory was refused ${times}${last}, and the program ended with exit code 0 all the same: what it computed with it is missing.`;
}

/**
 * A launch of one size that was refused memory and ended well does not show that the size fits: JAX computes in the background, and raises
 * where a result is read, which a short run may never do.
 */
export function unheardDiagnosis(evidence: string, exit: Exit): Diagnosis {
  const last = exit.ledger?.refusals.at(-1);
  return {
    class: 'device_oom',
    certain: true,
    evidence,
    line: null,
    fields: { ...NO_FIGURES, tried_bytes: last?.size_bytes ?? null, total_bytes: last?.budget_bytes ?? null },
    phase: 'unknown',
    cause:
      'The program did not notice that memory was refused to it, as with JAX, which raises only where a result is read.',
    advice:
      'Use a smaller micro-batch, and have the script read a result of each step (print the loss), so that it fails where it runs out of memory.',
    reason: 'batch',
  };
}
