import type { FindBatchReport } from '../../contract/reports.js';
import type { Config } from '../../contract/rung.js';
import type { Target } from '../target.js';
import type { WorkRequest } from '../types.js';
import type { SearchOutcome } from './outcome.js';

/** What the command asks for by itself; null: it has no batch of its own (a placeholder carries it), or none was seen. */
export function ownBatchReport(target: Target, { loop }: SearchOutcome): FindBatchReport['own'] {
  const size = target.own.microBatch ?? loop?.own_batch ?? null;
  if (size === null) return null;
  const accumulation = target.own.accumulation ?? 1;
  return {
    micro_batch: size,
    accumulation,
    effective_batch: size * accumulation * target.worldSize,
    samples: loop?.samples ?? null,
  };
}

/** The words that run the command at `config`'s effective batch; without one, at what it asks for by itself. */
export function runWords({ command, options }: WorkRequest, name: string, config: Config | null): string[] {
  const words = ['oomtune', 'run', '--name', name];
  if (config !== null) words.push('--effective-batch', String(config.effective_batch));
  if (options.device !== null) words.push('--device', options.device);
  if (options.budget !== null) words.push('--budget', options.budget);
  if (options.gpus > 1) words.push('--gpus', String(options.gpus));
  return [...words, '--', ...command];
}

/** Where every sample fits at once it is not the memory that ends the search. */
export function dataIsTheLimit(
  max: number,
  target: Target,
  { loop }: SearchOutcome,
  { maxBatch }: WorkRequest['options'],
): string[] {
  const samples = loop?.samples ?? null;
  if (samples === null || max < samples || target.carrier('micro_batch') !== 'hook') return [];
  if (maxBatch !== null && maxBatch <= samples) return [];
  return [`All ${samples} samples of the data set fit at once: the data set is the limit here, not the memory.`];
}

/** Where the script makes its batches by itself, without a DataLoader: nothing but its own setting makes others. */
export function byHandNotes(config: Config, target: Target, { loop }: SearchOutcome): string[] {
  if (loop?.place !== 'call' || target.carrier('micro_batch') !== 'hook') return [];
  const own = (loop.own_batch ?? 0) * (target.own.accumulation ?? 1) * target.worldSize;
  if (config.effective_batch === own) return [];
  return [
    `The script makes its batches without a DataLoader: sizes were set where it calls its model. run trains on its own batches of ${loop.own_batch}, cut where they do not fit; batches of ${config.micro_batch} are made by the script's own setting.`,
  ];
}
