import { formatBytes } from '../../common/size.js';
import type { Diagnosis } from '../../contract/diagnosis.js';
import type { Observation } from '../../contract/measurement.js';
import type { JobOptions } from '../../contract/options.js';
import type { Action } from '../../tuner/types.js';
import type { SearchOutcome } from './search.js';
import { PLACEHOLDER, userError } from './undriveable.js';

/** Where the model's call is cut, the whole batch's outputs and the loss's graph on them stay in memory. */
const WHOLE_OUTPUTS =
  '--cut loader needs less where the outputs of the whole batch are what does not fit (the logits of a language model, say) and the loss does not compare the samples of its batch: the loop then goes round once for each micro-batch, which is not the same for every loop.';
/** As WHOLE_OUTPUTS, where no loader makes the batches. */
const LOSS_INSIDE =
  'Where the outputs of the whole batch are what does not fit (the logits of a language model, say), a loss that is made in the model’s forward() needs less.';

/** Where no call of a model had been cut. Micro-batches of a loader add up what backward() makes, and no gradients that are set by hand. */
const NONE_CUT =
  'No call of a model was cut before that, so it is no smaller at any size: a smaller batch by the script’s own flag or variable needs less, and trains something else.';
const NONE_CUT_LOADER =
  '--cut loader cuts the batches of the DataLoader instead, for scripts whose gradients backward() makes: the loop then goes round once for each micro-batch, which is not the same for every loop.';

/** Why nothing fits, and what may help: a larger budget, or excluded knobs and sizes. Errors while loading keep their advice. */
export function exhaustedDiagnosis(
  seen: Diagnosis | null,
  action: Extract<Action, { type: 'exhausted' }>,
  options: Pick<JobOptions, 'minBatch' | 'amp' | 'checkpointing' | 'accumulation' | 'exact'>,
  { cut, cutCalls, observations, loop }: Pick<SearchOutcome, 'cut' | 'cutCalls' | 'observations' | 'loop'>,
): Diagnosis {
  const { why } = action;
  if (action.cause === 'growth') return growthDiagnosis(action);
  if (seen === null) {
    const advice = 'Widen --min-batch, --max-batch and --effective-batch, or leave out --accumulation off.';
    return { ...userError(why, advice), cause: 'The options leave no micro-batch to try.' };
  }
  // Keeps the advice for a job that could not load, or whose batch cannot be set.
  if (seen.phase === 'load' || seen.advice.startsWith(PLACEHOLDER)) return seen;
  const none = cutCalls?.length === 0;
  const advice = [exhaustedAdvice(options, least(observations), none)];
  const byHand = loop?.place === 'call';
  if (none) advice.push(NONE_CUT, ...(byHand ? [] : [NONE_CUT_LOADER]));
  else if (cut?.cut === 'model') {
    if (cutCalls !== null) advice.push(whatIsCut(cutCalls));
    advice.push(byHand ? LOSS_INSIDE : WHOLE_OUTPUTS);
  }
  return { ...seen, advice: advice.join(' ') };
}

/** A launch at a chosen size ran out of memory: with what was cut before. `cutCalls`: see SearchOutcome. */
export function withCutCalls(seen: Diagnosis, cutCalls: readonly string[] | null): Diagnosis {
  if (cutCalls === null || seen.class !== 'device_oom' || seen.reason !== 'batch') return seen;
  const none = ['Give a larger --budget, or make the model smaller.', NONE_CUT, NONE_CUT_LOADER];
  return { ...seen, advice: (cutCalls.length === 0 ? none : [seen.advice, whatIsCut(cutCalls)]).join(' ') };
}

const whatIsCut = (calls: readonly string[]): string =>
  `What is cut are calls of ${calls.join(', ')}: what is computed of their outputs has the whole batch.`;

/** The loop outgrows any budget, so the script has to change. */
function growthDiagnosis({ why }: Extract<Action, { type: 'exhausted' }>): Diagnosis {
  const advice =
    'Keep `loss.item()` rather than `loss`, detach what is carried from step to step, and bound caches. A run that is over before the budget is full: --no-tune runs it as it stands.';
  const found = { class: 'device_oom', phase: 'train', cause: `${why}.`, cure: 'none', reason: 'leak' } as const;
  return { ...userError(`${why}.`, advice), ...found };
}

/** The verdict on a script that ran out of memory at its own batch, which cannot be set. `searched`: why not. */
export function outgrown(seen: Diagnosis, own: number | undefined, searched: Diagnosis | null): Diagnosis {
  const batch = own === undefined ? '' : ` of ${own}`;
  const cause = `The script ran out of memory at its own batch${batch}, and no training step was seen at a smaller one.`;
  const again = searched?.evidence ? `Started again: ${searched.evidence}\n` : '';
  return { ...seen, cause, advice: `${again}${searched?.advice ?? PLACEHOLDER}`, cure: 'none' };
}

/** The smallest size that was tried, and the fewest bytes that it had on any rung with what it was refused; null: not known. */
function least(observations: readonly Observation[]): { micro_batch: number; bytes: number } | null {
  const known = observations.flatMap(({ outcome, micro_batch, peaks: { total_bytes }, refused_bytes }) =>
    outcome !== 'device_oom' || total_bytes === null || refused_bytes === null
      ? []
      : [{ micro_batch, bytes: total_bytes + refused_bytes }],
  );
  return known.toSorted((a, b) => a.micro_batch - b.micro_batch || a.bytes - b.bytes)[0] ?? null;
}

/** `whole`: every size had the whole batch. */
function exhaustedAdvice(
  options: Parameters<typeof exhaustedDiagnosis>[2],
  nearest: ReturnType<typeof least>,
  whole: boolean,
): string {
  const ways = ['a larger --budget'];
  if (options.minBatch > 1) ways.push('a smaller --min-batch');
  const { amp, checkpointing, accumulation, exact } = options;
  if (amp !== 'auto' || exact || checkpointing !== 'auto' || accumulation !== 'auto') ways.push('more knobs to turn');
  const advice = `Give ${ways.join(' or ')}, or make the model smaller.`;
  if (nearest === null) return advice;
  const size = whole ? 'The whole batch' : `Micro-batch ${nearest.micro_batch}`;
  return `${advice} ${size} had come to ${formatBytes(nearest.bytes)} with what it was refused, so it takes more than that.`;
}
