import { z } from 'zod';
import { count, text } from './fields.js';

const amp = z.enum(['off', 'bf16', 'fp16']);
export type Amp = z.infer<typeof amp>;

/** One combination of knobs that make room for a micro-batch. A knob of another kind is added here, and has its name by that. */
export const rung = z.object({
  amp,
  checkpointing: z.boolean(),
  /** Saved activations are moved to host memory. Only ever on the last rung, and only where the hook can do it. */
  offload: z.boolean().default(false),
});
export type Rung = z.infer<typeof rung>;
/** Anything with the knobs of a rung in it; what documents leave out is off. */
export type RungLike = z.input<typeof rung>;

const KNOBS = Object.keys(rung.shape) as (keyof Rung)[];

/** The rung alone, out of a record that has its knobs among its fields. */
export const rungOf = (record: RungLike): Rung => rung.parse(record);

export const sameRung = (a: RungLike, b: RungLike): boolean =>
  KNOBS.every((knob) => (a[knob] ?? false) === (b[knob] ?? false));

/** `bf16 + checkpointing`; the first rung, which turns nothing on, is `as it stands`. */
export function rungName(record: RungLike & { expandable_segments?: boolean }): string {
  const knobs: string[] = KNOBS.flatMap((knob) => {
    const value = record[knob] ?? false;
    if (value === false || value === 'off') return [];
    return [value === true ? knob : value];
  });
  if (record.expandable_segments) knobs.push('expandable segments');
  return knobs.length > 0 ? knobs.join(' + ') : 'as it stands';
}

/** A rung as documents show it: `offload` is there, and true, only where it is on. */
export const shownRung = rung.extend({ offload: z.boolean().optional() });

/** The knobs (and world size) as they reach the command. effective = micro x accumulation x world. */
export const config = z.object({
  micro_batch: count,
  accumulation: count,
  world_size: count,
  effective_batch: count,
  ...rung.shape,
  /** Present and true where it was shown with segments of the caching allocator that can grow, and is to be run so. */
  expandable_segments: z.boolean().optional(),
});
export type Config = z.infer<typeof config>;
/** As documents have it, which leave out what is off. */
export type ConfigLike = z.input<typeof config>;

/** A configuration as documents show it. */
export const shownConfig = config.extend({
  ...shownRung.shape,
  expandable_segments: z.literal(true).optional(),
});

export function configOf(
  knobs: RungLike & { expandable_segments?: boolean },
  { micro_batch, accumulation, world_size }: Pick<Config, 'micro_batch' | 'accumulation' | 'world_size'>,
): Config {
  return {
    micro_batch,
    accumulation,
    world_size,
    effective_batch: micro_batch * accumulation * world_size,
    ...rungOf(knobs),
    ...(knobs.expandable_segments ? { expandable_segments: true } : {}),
  };
}

/** Leaves out what is not on: documents of jobs that never had those knobs stay as they are. */
export function shown<R extends { offload?: boolean; expandable_segments?: boolean }>(
  record: R,
): Omit<R, 'offload' | 'expandable_segments'> & { offload?: true; expandable_segments?: true } {
  const { offload, expandable_segments, ...rest } = record;
  return {
    ...rest,
    ...(offload ? { offload } : {}),
    ...(expandable_segments ? { expandable_segments } : {}),
  };
}

/** Where a batch is cut into micro-batches: where the model is called, or at the DataLoader. */
export const cutPlace = z.enum(['model', 'loader']);
export type CutPlace = z.infer<typeof cutPlace>;

/** How a run's batches were cut, and why so. */
export const cut = z.object({ cut: cutPlace, why: text(1000) });
export type Cut = z.infer<typeof cut>;
