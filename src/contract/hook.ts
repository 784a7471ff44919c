import { z } from 'zod';
import { phase } from './failure.js';
import { whole } from './fields.js';
import { MOST_BYTES, measuredSteps, peaks } from './measurement.js';
import { phasePeak, rehearsedPhase } from './rehearsal.js';
import { cutPlace, HOOK_KNOBS, rung } from './rung.js';

/** The protocol of worker and Python hook: JSON lines over a unix socket. All of it is bounded, as a job can write anything there. */

const count = whole.max(2 ** 40);
const size = count.min(1);
const figure = z.number().nonnegative();
const samples = figure.max(2 ** 50).nullish();
const seconds = figure.max(1e9);

/** Text, cut to `most` characters. */
const text = (most: number) => z.string().transform((value) => value.slice(0, most));

/** Codes of warnings: `dataset_on_device`, … */
const CODE = /^[a-z][a-z_]{0,47}$/;
const MOST_CODES = 32;
/** Also the most steps whose seconds are kept. */
const MOST_RANKS = 4096;
const MOST_STEPS = 1024;

/** An impossible figure becomes null, and the message still counts. */
const lenient = <S extends z.ZodType>(schema: S) => schema.catch(null as never);

/** The first message of each rank. */
const hello = z.object({
  t: z.literal('hello'),
  v: z.literal(1),
  pid: count,
  /** The process that it is a fork of; null: it was started. */
  fork_server: count.nullable().optional(),
  rank: count.max(MOST_RANKS - 1),
  world_size: z.number().int().positive().max(MOST_RANKS),
  python: text(100).optional(),
  torch: text(100).nullable().optional(),
  device: text(100).nullable().optional(),
});

/** The training loop asks for its first batch: its own settings, and what the hook can turn on. */
const loop = z.object({
  t: z.literal('loop'),
  own_batch: size.nullable(),
  own_accumulation: size.nullable(),
  samples,
  /** Where sizes are set: in what the loader yields, in that and the script's variables that hold the loader's batch size, or in what the model is called with. */
  place: z.enum(['loader', 'variables', 'call']).default('loader'),
  can: z.object({
    batch: z.boolean(),
    accumulation: z.boolean(),
    /** bf16, at its full speed. */
    amp: z.boolean(),
    /** fp16, with a loss scaler. */
    fp16: z.boolean().default(false),
    checkpointing: z.boolean(),
    /** Blocks of which checkpointing can take some; 0: it takes all or none. */
    checkpointed_blocks: count.default(0),
    offload: z.boolean().default(false),
    /** A part of the activations can be moved by itself. */
    offloaded_part: z.boolean().default(false),
    /** There is a head whose loss may be computed in chunks; the first probe with it shows whether it is. */
    chunked_loss: z.boolean().default(false),
    /** The model is compiled, and its compiler takes a budget for activations. */
    activation_memory_budget: z.boolean().default(false),
    /** There is a device beside the host, and an optimizer that can step a few parameters at a time. */
    optimizer_on_host: z.boolean().default(false),
    optimizer_8bit: z.boolean().default(false),
    bf16_weights: z.boolean().default(false),
    switch_rung: z.boolean().default(false),
  }),
  /** Why a knob cannot be turned on, by its name, where that is worth telling. */
  why_not: z.partialRecord(z.enum(HOOK_KNOBS), text(1000)).catch({}).default({}),
  warnings: z
    .array(z.string())
    .default([])
    .transform((codes) => codes.filter((code) => CODE.test(code)).slice(0, MOST_CODES)),
});

const lenientPeaks = Object.fromEntries(
  Object.entries(peaks.shape).map(([name, schema]) => [name, lenient(schema)]),
) as unknown as typeof peaks.shape;

/** The cost on this rank of a probe, or of the steps that were added to it. */
const measured = z.object({
  t: z.literal('measured'),
  micro_batch: size,
  accumulation: size,
  ...lenientPeaks,
  ...measuredSteps.shape,
  steps: count,
  alloc_retries: count.default(0),
  growth_bytes_per_step: lenient(measuredSteps.shape.growth_bytes_per_step),
  spread_bytes: lenient(measuredSteps.shape.spread_bytes),
  excess_bytes: lenient(measuredSteps.shape.excess_bytes),
  kept_by: text(500).nullable().optional(),
  /** Of each step. */
  step_s: z
    .array(seconds)
    .default([])
    .transform((steps) => steps.slice(0, MOST_STEPS)),
  /** Tokens of the longest sample; null: the inputs do not tell, or samples are counted. */
  longest_tokens: lenient(size.nullable()).optional(),
  own_accumulation: size.nullable().optional(),
  own_amp: z.boolean().optional(),
  /** Steps at the end in which a caching allocator asked the driver for nothing; null: there is none. */
  quiet_steps: count.nullable().optional(),
  /** By how much what it holds rose with each of the later steps. */
  creep_bytes_per_step: lenient(measuredSteps.shape.growth_bytes_per_step),
});

/** The script raised an exception that nothing caught, or ran out of memory. */
const exception = z.object({
  t: z.literal('exception'),
  class: text(200),
  message: text(4000),
  /** `after`: the training loop had ended, and none of the others was seen. */
  phase: z.enum([...phase.options, 'after']).catch('unknown'),
  /** `false`: gradients were off where it was raised. */
  gradients: z.boolean().optional(),
  frame: text(500).nullable().optional(),
  oom: z.boolean(),
  /** The variable of the script that holds a good part of the memory, and grew. */
  kept_by: text(500).nullable().optional(),
  /** `true`: the script trained on batches of its own, while a loader might yet have been asked for one. */
  waited_for_loader: z.boolean().optional(),
  /** `true`: a model was trained, and no optimizer of torch had been made. */
  without_optimizer: z.boolean().optional(),
  /** The kinds of the modules whose calls had been cut when memory ran out; absent: none had to be. */
  cut_calls: z.array(text(200)).optional(),
  micro_batch: lenient(count.nullable()).optional(),
  traceback: text(8192).optional(),
});

/** The optimizer steps of a running job so far. */
const step = z.object({
  t: z.literal('step'),
  n: count,
  samples,
  /** In use by the framework once the optimizer has stepped; null where its device cannot be told. */
  resident_bytes: lenient(z.number().nonnegative().max(MOST_BYTES).nullable()).optional(),
  /** The variable of the script that grows with it. */
  kept_by: text(500).nullable().optional(),
  /** What a caching allocator holds now, the most that was in use of it at once, and how often it gave its cache back to try again. */
  reserved_bytes: lenient(z.number().nonnegative().max(MOST_BYTES).nullable()).optional(),
  allocated_peak_bytes: lenient(z.number().nonnegative().max(MOST_BYTES).nullable()).optional(),
  alloc_retries: lenient(z.number().nonnegative().nullable()).optional(),
});

/** The loop evaluates, saves, or does something to warn of. */
const remark = z.object({
  t: z.enum(['eval', 'save', 'warn']),
  code: z.string().regex(CODE).optional(),
  message: text(1000).default(''),
});

/** A job that was asked to has written a checkpoint at so many steps, and waits. */
const checkpoint = z.object({ t: z.literal('checkpoint'), n: count });

/** Where the hook cuts batches into micro-batches, and why there. */
const cut = z.object({ t: z.literal('cut'), cut: cutPlace, why: text(1000) });

/** A rehearsal has come so far: what each phase took, and in which it is; `over`: to its end. */
const rehearsed = z.object({
  t: z.literal('rehearsed'),
  phase: rehearsedPhase,
  phases: z.array(phasePeak).max(4),
  steps: count,
  over: z.boolean(),
});

/** A program of JAX ends: the most that was in use of XLA's memory pool, what the pool is, and what it may become. */
const bytes = z.number().positive().max(MOST_BYTES);
const xlaPool = z.object({ t: z.literal('xla_pool'), peak_bytes: bytes, pool_bytes: bytes, limit_bytes: bytes });

/** Why the hook takes no part, or no longer does. */
const goodbye = z.object({ t: z.literal('goodbye'), reason: text(100), message: text(1000).default('') });

/** A process id in the job's own namespace. */
const process = z.object({ pid: size });

/**
 * The fork server's first message: it waits at the first use of the device, to be forked for each life; where these differ by their
 * arguments, before those are read: as they are, without the program's name. Null: they do not.
 */
const forkServer = z.object({
  t: z.literal('fork_server'),
  ...process.shape,
  arguments: z.array(z.string()).nullable().default(null),
});

/** From the fork server: this fork trains. */
const life = z.object({ t: z.literal('life'), ...process.shape });

/** From the fork server: how that fork ended; one of the two is null. */
const died = z.object({
  t: z.literal('died'),
  ...process.shape,
  code: count.max(255).nullable(),
  signal: count.max(64).nullable(),
});

/** Why the started process trains itself and is no fork server. */
const plain = z.object({ t: z.literal('plain'), message: text(1000) });

export const hookMessage = z.discriminatedUnion('t', [
  hello,
  forkServer,
  life,
  died,
  plain,
  loop,
  measured,
  exception,
  step,
  remark,
  checkpoint,
  cut,
  rehearsed,
  xlaPool,
  goodbye,
]);

export type HookMessage = z.infer<typeof hookMessage>;
export type Hello = z.infer<typeof hello>;
export type Loop = z.infer<typeof loop>;
export type Measured = z.infer<typeof measured>;
export type HookException = z.infer<typeof exception>;
export type Step = z.infer<typeof step>;
export type Checkpoint = z.infer<typeof checkpoint>;
export type Rehearsed = z.infer<typeof rehearsed>;
export type XlaPool = z.infer<typeof xlaPool>;
export type Goodbye = z.infer<typeof goodbye>;
export type Died = z.infer<typeof died>;

export const hookOrder = z.discriminatedUnion('t', [
  /** Run this size for so many optimizer steps, and tell what it cost. */
  z.object({
    t: z.literal('probe'),
    micro_batch: size,
    accumulation: size,
    ...rung.required().shape,
    steps: size,
    /** Samples of the batch that the script's loop sees; null: not fixed. */
    batch: size.nullable(),
    /** Where samples differ in length and memory is cached, other samples than the longest have their turn too. */
    vary: z.boolean(),
    benchmark: z.boolean(),
  }),
  /** The probe goes on where it is, for more steps. */
  z.object({ t: z.literal('more'), steps: size }),
  /** The script goes on as it stands. */
  z.object({ t: z.literal('go') }),
  /** The script is to end where it is. */
  z.object({ t: z.literal('end') }),
  /** The script is to tell of its next checkpoint, and to wait there for `end` or `go`. */
  z.object({ t: z.literal('checkpoint') }),
  /** The life that runs is to end, and the fork server to be forked once more, with these variables; null: with the arguments as they are. */
  z.object({
    t: z.literal('life'),
    env: z.record(z.string(), z.string()),
    arguments: z.array(z.string()).nullable(),
  }),
]);
export type HookOrder = z.infer<typeof hookOrder>;
