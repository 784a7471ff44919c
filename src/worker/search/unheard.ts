import { endOfRegular } from '../../common/regular-file.js';
import { formatBytes } from '../../common/size.js';
import { isHost, type KindName } from '../../contract/device-id.js';
import { type Diagnosis, NO_FIGURES } from '../../contract/diagnosis.js';
import type { Exit } from '../../contract/launch.js';

/** The same of one whose training went on by steps of its own: it caught the error, and its batch is no longer the one that it began with. */
export function gotOver(refused: string): string {
  return `${refused.split(', and the program')[0]}, and the script, or a library in it, got over that: nothing is recorded of its batch.`;
}

/**
 * What to say of a process that ended with exit code 0 although memory was refused to it; null: nothing was. On a GPU the ledger's refusals
 * tell nothing, as allocators give back what they cache and ask again: there XLA's own word in the log does.
 */
export function unheardRefusal(exit: Exit, kind: KindName, logFile: string): string | null {
  if (exit.code !== 0 || exit.ended_by !== 'job') return null;
  if (!isHost(kind)) return unheardByXla(endOfRegular(logFile, END_BYTES)?.text ?? '');
  const refused = exit.ledger?.refused ?? 0;
  if (refused === 0) return null;
  const size = exit.ledger?.refusals.at(-1)?.size_bytes;
  const last = size === undefined ? '' : `, the last time of ${formatBytes(size)}`;
  const times = refused === 1 ? 'once' : `${refused} times`;
  return `Memory was refused ${times}${last}, and the program ended with exit code 0 all the same: what it computed with it is missing, unless a library did without.`;
}

/**
 * XLA's pool says so on stderr when it gives up (xla/tsl/framework/bfc_allocator.cc). Where it only tries something smaller next, the
 * line ends with "The caller indicates that this is not a failure".
 */
export function unheardByXla(log: string): string | null {
  const line = log
    .split('\n')
    .findLast(
      (one) =>
        /Allocator \(GPU_\d+_bfc\) ran out of memory trying to allocate/.test(one) && !one.includes('not a failure'),
    );
  const size = line === undefined ? null : /trying to allocate (\S+)/.exec(line)?.[1];
  if (size == null) return null;
  return `XLA ran out of memory trying to allocate ${size}, and the program ended with exit code 0 all the same: what it computed with it is missing.`;
}

/** XLA's list of what the pool holds, which follows its word, is shorter than this. */
const END_BYTES = 4 * 2 ** 20;

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
