import { z } from 'zod';
import { blocks, someBlocks } from './blocks.js';
import { count, text } from './fields.js';
import { type KnobValue, knobValue } from './knob.js';

const amp = z.enum(['off', 'bf16', 'fp16']);
export type Amp = z.infer<typeof amp>;

/** A part of a whole, such as `0.5`; empty: all of it. */
export const part = z.string().regex(/^(0\.\d{1,2})?$/);

/** A combination of knobs that save memory. To add a knob, add it here; its name, and how the hook is told of it, follow. */
export const rung = z.object({
  amp,
  checkpointing: z.boolean(),
  /** Which of the model's blocks are checkpointed, such as `0-3,6/12`: the others keep their activations. Empty: all, or checkpointing is off. */
  checkpointed_blocks: blocks.default(''),
  /** Saved activations are moved to host memory. Only where the hook can do it. */
  offload: z.boolean().default(false),
  /** How much of them, such as `0.3`: the first, which the backward pass needs last. Empty: all, or offload is off. */
  offloaded_part: part.default(''),
  /** The loss of a language model is computed in chunks of tokens. The numbers are the same. */
  chunked_loss: z.boolean().default(false),
  /** The part of its activations that a compiled model may keep, such as `0.5`: the compiler computes the others again. Empty: what it does by itself. */
  activation_memory_budget: part.default(''),
  /** The optimizer's state waits in host memory between steps. The numbers are the same. */
  optimizer_on_host: z.boolean().default(false),
  /** Adam's moments are held in 8 bits. Only where it is allowed. */
  optimizer_8bit: z.boolean().default(false),
  /** The models' weights are held in bf16, with their gradients and the optimizer's state. Only where it is allowed. */
  bf16_weights: z.boolean().default(false),
});
export type Rung = z.infer<typeof rung>;
/** Any record with a rung's knobs; absent ones are off. */
export type RungLike = z.input<typeof rung>;

const KNOBS = Object.keys(rung.shape) as (keyof Rung)[];

/** Knobs that nothing but the hook can set: no command has them of its own. */
export const HOOK_KNOBS = [
  'checkpointed_blocks',
  'offload',
  'offloaded_part',
  'chunked_loss',
  'activation_memory_budget',
  'optimizer_on_host',
  'optimizer_8bit',
  'bf16_weights',
] as const satisfies readonly (keyof Rung)[];
export type HookKnob = (typeof HOOK_KNOBS)[number];

/** Those that change numerics and are never turned on without a word: in `--allow`, by these. */
export const ALLOWANCES = { '8bit-optimizer': 'optimizer_8bit', 'bf16-weights': 'bf16_weights' } as const;
export type Allowance = keyof typeof ALLOWANCES;
export type AllowedKnob = (typeof ALLOWANCES)[Allowance];
export const ALLOWED_KNOBS: readonly AllowedKnob[] = Object.values(ALLOWANCES);

export const rungOf = (record: RungLike): Rung => rung.parse(record);

export const sameRung = (a: RungLike, b: RungLike): boolean =>
  KNOBS.every((knob) => (a[knob] || false) === (b[knob] || false));

/** The name of the script's own rung. */
export const OWN_RUNG = 'as it stands';

/** `bf16 + checkpointing`, or `as it stands` where nothing is on. */
export function rungName(record: RungLike & { expandable_segments?: boolean }): string {
  const knobs: string[] = KNOBS.flatMap((knob) => {
    const value = record[knob] || 'off';
    if (value === 'off' || knob === 'checkpointed_blocks' || knob === 'offloaded_part') return [];
    if (knob === 'offload' && record.offloaded_part) return [`offload of ${record.offloaded_part}`];
    if (knob === 'checkpointing' && record.checkpointed_blocks) return [someBlocks(record.checkpointed_blocks)];
    const name = knob.replaceAll('_', ' ');
    return [value === true ? name : knob === 'amp' ? value : `${name} ${value}`];
  });
  if (record.expandable_segments) knobs.push('expandable segments');
  return knobs.length > 0 ? knobs.join(' + ') : OWN_RUNG;
}

/** A rung in documents: the hook's own knobs are there only if they are on. */
export const shownRung = rung.extend({
  checkpointed_blocks: blocks.optional(),
  offload: z.boolean().optional(),
  offloaded_part: part.optional(),
  chunked_loss: z.boolean().optional(),
  activation_memory_budget: part.optional(),
  optimizer_on_host: z.boolean().optional(),
  optimizer_8bit: z.boolean().optional(),
  bf16_weights: z.boolean().optional(),
});

/** The knobs that reach the command. effective = micro x accumulation x world. */
export const config = z.object({
  micro_batch: count,
  accumulation: count,
  world_size: count,
  effective_batch: count,
  /** Tokens of a micro-batch at most, its padding included: as many as `micro_batch` of the longest samples have. Absent: samples are counted. */
  micro_batch_tokens: count.optional(),
  ...rung.shape,
  /** Present and true where it was shown with segments of the caching allocator that can grow, and is to be run so. */
  expandable_segments: z.boolean().optional(),
  /** Where a knob of the command's own is searched: its value. */
  knob: knobValue.optional(),
});
export type Config = z.infer<typeof config>;
/** As in documents, without what is off. */
export type ConfigLike = z.input<typeof config>;

export const shownConfig = config.extend({
  ...shownRung.shape,
  expandable_segments: z.literal(true).optional(),
});

export function configOf(
  knobs: RungLike & { expandable_segments?: boolean; knob?: KnobValue },
  {
    micro_batch,
    accumulation,
    world_size,
    micro_batch_tokens,
  }: Pick<Config, 'micro_batch' | 'accumulation' | 'world_size' | 'micro_batch_tokens'>,
): Config {
  return {
    micro_batch,
    accumulation,
    world_size,
    effective_batch: micro_batch * accumulation * world_size,
    ...(micro_batch_tokens === undefined ? {} : { micro_batch_tokens }),
    ...rungOf(knobs),
    ...(knobs.expandable_segments ? { expandable_segments: true } : {}),
    ...(knobs.knob ? { knob: knobs.knob } : {}),
  };
}

/** The same samples in micro-batches of another size, and of as many tokens as go with it. */
export function withMicroBatch(config: Config, size: number, accumulation: number): Config {
  const { micro_batch_tokens: tokens, ...rest } = config;
  const scaled = tokens === undefined ? {} : { micro_batch_tokens: Math.floor((tokens / config.micro_batch) * size) };
  return { ...rest, ...scaled, micro_batch: size, accumulation };
}

/** Leaves out newer knobs that are off, so that older documents stay as they are. */
export function shown<R extends { [knob in Newer]?: boolean | string }>(record: R): Omit<R, Newer> & ShownNewer {
  const newer: readonly string[] = [...HOOK_KNOBS, 'expandable_segments'];
  const kept = Object.entries(record).filter(([name, value]) => !newer.includes(name) || value);
  return Object.fromEntries(kept) as Omit<R, Newer> & ShownNewer;
}
type Newer = HookKnob | 'expandable_segments';
type Texts = 'checkpointed_blocks' | 'offloaded_part' | 'activation_memory_budget';
type ShownNewer = { [knob in Texts]?: string } & { [knob in Exclude<Newer, Texts>]?: true };

/** Where a batch is cut into micro-batches: where the model is called, or at the DataLoader. */
export const cutPlace = z.enum(['model', 'loader']);
export type CutPlace = z.infer<typeof cutPlace>;

export const cut = z.object({ cut: cutPlace, why: text(1000) });
export type Cut = z.infer<typeof cut>;
