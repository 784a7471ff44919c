import { formatBytes } from '../../common/size.js';
import { type Diagnosis, NO_FIGURES } from '../../contract/diagnosis.js';
import type { PhasePeak, Rehearsal, RehearsedPhase } from '../../contract/rehearsal.js';
import type { Config, CutPlace } from '../../contract/rung.js';

/** What the hook last said of a rehearsal, the worst of all ranks, and how it ended. */
export interface Rehearsed {
  phases: PhasePeak[];
  steps: number;
  /** In which it ended. */
  phase: RehearsedPhase;
  /** Where its batches are cut, or would be; null: it has not said. */
  cut: CutPlace | null;
  /** Why it failed; null: it did not. */
  diagnosis: Diagnosis | null;
}

const WORDS: Record<RehearsedPhase, string> = {
  train: 'training',
  eval: 'evaluation',
  generate: 'generation',
  save: 'saving of its state',
};

const REMEDIES: Record<RehearsedPhase, string> = {
  train: 'Give it a larger --budget.',
  eval: 'Give the evaluation a smaller batch of its own, and run it under torch.no_grad().',
  generate: 'Generate for fewer samples or fewer tokens at a time, under torch.no_grad().',
  save: 'Move the state to the host before it is saved, or save it in shards.',
};
const COLLECTS =
  'Its outputs are collected on the device: move them to the host as they come (`.cpu()`; `eval_accumulation_steps` of transformers’ Trainer).';

/** The phase in which it ran out of the `budget`'s bytes, or would with all its batches; null: none did. */
export function outOfMemory({ phases, phase, diagnosis }: Rehearsed, budget: number): RehearsedPhase | null {
  if (diagnosis?.class === 'device_oom') return phase;
  return phases.find(({ whole_bytes }) => whole_bytes !== null && whole_bytes > budget)?.phase ?? null;
}

export const reported = (rehearsed: Rehearsed, budget: number): Rehearsal => ({
  phases: rehearsed.phases,
  steps: rehearsed.steps,
  out_of_memory: outOfMemory(rehearsed, budget),
});

/**
 * Whether a smaller training batch would help. The evaluation has a batch of its own, so it helps only where that is the training's
 * (`follows`: one flag of the command sets both), or where half of what the training has left in memory is as much as is lacking. That
 * is of the batch that its loop sees, which stays whole where it is cut at the model's call (unless the effective batch is `free`).
 */
export function smallerHelps(
  rehearsed: Rehearsed,
  config: Config,
  { follows, free, budget }: { follows: boolean; free: boolean; budget: number },
): boolean {
  const phase = outOfMemory(rehearsed, budget);
  if (phase === null || phase === 'save') return false;
  if (phase === 'train') return true;
  const seen = rehearsed.phases.find((one) => one.phase === 'eval');
  if (follows && seen?.batch === config.micro_batch) return true;
  if (!free && rehearsed.cut === 'model') return false;
  const lacking = rehearsed.diagnosis?.fields.tried_bytes ?? Math.max(0, (seen?.whole_bytes ?? 0) - budget);
  return lacking > 0 && (seen?.held_bytes ?? 0) / 2 >= lacking;
}

/** Why the job would not come to its end at any batch size, and the remedy. */
export function failureOf(rehearsed: Rehearsed, budget: number): Diagnosis {
  const { diagnosis } = rehearsed;
  const phase = outOfMemory(rehearsed, budget) as RehearsedPhase;
  const seen = rehearsed.phases.find((one) => one.phase === phase) ?? null;
  const certain = diagnosis !== null;
  const collects = phase !== 'save' && rehearsed.phases.some((one) => one.phase === 'eval' && one.whole_bytes !== null);
  const where = phase === 'eval' && seen !== null ? ofWhich(seen) : '';
  const needed = seen?.whole_bytes ?? null;
  const cause = certain
    ? `The training fits into ${formatBytes(budget)}, but its ${WORDS[phase]} ran out of memory${where}.`
    : `The training fits into ${formatBytes(budget)}, but its ${WORDS[phase]} would take ${formatBytes(needed ?? 0)}${where}.`;
  return {
    ...(diagnosis ?? { line: null, fields: { ...NO_FIGURES, total_bytes: budget }, evidence: cause }),
    class: 'device_oom',
    certain,
    phase: phase === 'generate' ? 'eval' : phase,
    cause,
    advice: [REMEDIES[phase], ...(collects ? [COLLECTS] : []), 'A smaller training batch does not help.'].join(' '),
    cure: 'none',
    reason: phase === 'save' ? 'save' : 'eval',
  };
}

function ofWhich({ batches, of_batches: of, batch }: PhasePeak): string {
  if (batches === null) return '';
  return `, at batch ${batches}${of === null ? '' : ` of ${of}`}${batch === null ? '' : ` (${batch} samples each)`}`;
}

/** What a rehearsal that ended well has shown, for a person. */
export function notesOf({ phases, steps, diagnosis }: Rehearsed): string[] {
  if (diagnosis !== null && diagnosis.class !== 'ok')
    return [
      `The rehearsal failed for a reason that is not memory, and shows no more than that: ${diagnosis.evidence ?? diagnosis.cause}`,
    ];
  if (steps === 0) return ['The rehearsal saw no training step, so that it shows nothing of an evaluation.'];
  if (!phases.some(({ phase }) => phase === 'eval' || phase === 'generate'))
    return [`No evaluation was seen in the rehearsal (${steps} optimizer steps): what one takes is not known.`];
  return [];
}
