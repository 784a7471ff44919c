import type { JobOptions } from '../store/types.js';
import type { Diagnosis } from './types.js';
import { told } from './undriveable.js';

/**
 * Why no configuration fits, and what is left to do: a larger budget, or knobs and sizes that the options rule out. Where
 * the job ran out of memory while it loaded, the advice that was given for that stays.
 */
export function exhaustedDiagnosis(
  seen: Diagnosis | null,
  why: string,
  options: Pick<JobOptions, 'minBatch' | 'amp' | 'checkpointing' | 'accumulation' | 'exact'>,
): Diagnosis {
  if (seen === null) {
    const advice = 'Widen --min-batch, --max-batch and --effective-batch, or leave out --accumulation off.';
    return { ...told(why, advice), cause: 'The options leave no micro-batch to try.' };
  }
  return seen.phase === 'load' ? seen : { ...seen, advice: exhaustedAdvice(options) };
}

export function exhaustedAdvice(options: Parameters<typeof exhaustedDiagnosis>[2]): string {
  const ways = ['a larger --budget'];
  if (options.minBatch > 1) ways.push('a smaller --min-batch');
  const { amp, checkpointing, accumulation, exact } = options;
  if (amp !== 'auto' || exact || checkpointing !== 'auto' || accumulation !== 'auto') ways.push('more knobs to turn');
  return `Give ${ways.join(' or ')}, or make the model smaller.`;
}
