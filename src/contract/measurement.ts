import { z } from 'zod';
import { outcome, phase } from './failure.js';
import { count, text, whole } from './fields.js';
import { type KnobValue, knobValue } from './knob.js';
import { rung, shown, shownRung } from './rung.js';

/** A micro-batch's measurements, under the same names from hook to Redis. Bytes and seconds; null: not measured. */

export const MOST_BYTES = 2 ** 50;
const MOST_BLOCKS = 1024;
const measuredBytes = z.number().nonnegative().max(MOST_BYTES).nullable();
const change = z.number().min(-MOST_BYTES).max(MOST_BYTES).nullable();
const seconds = z.number().nonnegative();
const rate = z.number().nonnegative();

/** Peaks of one probe on the device that uses most. */
export const peaks = z.object({
  /** Highest driver-level (ledger) use, everything counted: this is what is compared with the budget. */
  total_bytes: measuredBytes,
  /** Highest allocated by the framework in forward and backward, and in the optimizer's step. */
  forward_backward_bytes: measuredBytes,
  optimizer_bytes: measuredBytes,
  /** Highest reserved by the framework's caching allocator. */
  reserved_bytes: measuredBytes,
  /** Bytes in use when a step starts: parameters, optimizer state, and gradients when accumulating. */
  resident_bytes: measuredBytes,
  /** What stays from step to step, as the framework's own objects tell: weights, all gradients, the optimizer's state. */
  parameter_bytes: measuredBytes.default(null),
  gradient_bytes: measuredBytes.default(null),
  optimizer_state_bytes: measuredBytes.default(null),
  /** Highest allocated but what was given back at once: workspace that a library does without. Null: not known, or no library is known to, so that all of it is needed. */
  needed_bytes: measuredBytes.default(null),
  /** The most that lay in pieces when the caching allocator had given back its cache. Null: it had not, or not known. */
  pieces_bytes: measuredBytes.default(null),
});
export type Peaks = z.infer<typeof peaks>;
export const NO_PEAKS = Object.fromEntries(Object.keys(peaks.shape).map((name) => [name, null])) as Peaks;

/** The hook's figures that an observation keeps unchanged, beside the peaks. */
export const measuredSteps = z.object({
  steps: whole,
  /** Allocator retries in the steady state (after the first step): it fits, but slowly. */
  alloc_retries: z.number().nonnegative().default(0),
  /** A library was at work that does with less workspace where memory is short (cuDNN): the peak is no proof of what a size needs. */
  flexible_workspaces: z.boolean().optional(),
  /** An allocation was refused, and the step went on without it: such a library did with less. */
  workspaces_refused: z.boolean().optional(),
  /** What the loop itself leaves behind with each step: no allocator that comes to rest by and by. */
  growth_bytes_per_step: change.optional(),
  /** That comes with shapes of inputs that no step before had, as a library's kernels for them do, and so to an end. */
  grows_with_shapes: z.boolean().optional(),
  /** By how much the peaks of its steps differ, the first left out, and what later ones may take beyond the highest; null: too few steps. */
  spread_bytes: measuredBytes.optional(),
  excess_bytes: measuredBytes.optional(),
  /** The loop ended by itself before it had made all of the steps: these are all that there are. */
  short: z.boolean().optional(),
  /** The variable of the script that grows with the steps, with its line; null: not seen. */
  kept_by: text(1024).nullable().optional(),
  /** Why the loss was not computed in chunks, where the rung asks for that; null: it was, or the rung does not. */
  unchunked: text(1024).nullable().optional(),
  /** Where all blocks are checkpointed: of each the bytes that its activations hold, and the seconds of its forward pass; null: not measured. */
  blocks: z
    .array(z.tuple([z.number().nonnegative().max(MOST_BYTES), seconds]))
    .max(MOST_BLOCKS)
    .nullable()
    .optional(),
});

/** One micro-batch size to be measured on a rung. */
export interface Probe {
  rung: z.infer<typeof rung>;
  micro_batch: number;
  /** Micro-batches per optimizer step while probing: 2 where the answer will accumulate (gradients stay resident). */
  accumulation: number;
  /** Samples of the batch of which these micro-batches are parts; null or absent: `accumulation` times as many. */
  batch?: number | null;
  steps: number;
  /** Steps without a new allocator segment after which a probe may end: before, the next step may need one. 0: no such wait. */
  rest_steps: number;
  /** Steps after which one that gives back its cache ends all the same; absent: 30, as for one that does not. */
  rest_within?: number;
  /** A probe whose memory rises by more than these bytes a step goes on until `growth_steps`, to tell a leak from a warm-up. */
  growth_bytes: number;
  growth_steps: number;
  /** One that rises by more than these bytes a step even then goes on until `leak_steps`, where the budget has room for what it leaves until then. */
  leak_bytes: number;
  leak_steps: number;
  /** One whose peaks differ from step to step by more than these bytes goes on until `spread_steps`. */
  spread_bytes: number;
  spread_steps: number;
  /** One whose caching allocator gives back its cache in a steady step goes on until then. */
  retry_steps: number;
  budget_bytes: number;
  /** True: must be the first thing that a new process runs. False: may share the process of the probe before. */
  fresh: boolean;
  /** In a process whose caching allocator has segments that can grow. */
  expandable_segments?: boolean;
  /** Where a knob of the command’s own is searched: its value, which takes a process of its own. */
  knob?: KnobValue;
  purpose: 'own' | 'floor' | 'climb' | 'bound' | 'verify' | 'speed';
  /** One sentence for a person: why this size, now. */
  why: string;
}

/** The outcome of a probe. */
export const observation = z.object({
  rung,
  micro_batch: count,
  accumulation: count,
  /** 1-based number of the launch that it ran in. */
  launch: count,
  /** 1-based number of the process among all of the search, a start or a fork of one. Absent: each launch was one. */
  life: count.optional(),
  /** It was the first probe of its process. */
  fresh: z.boolean(),
  outcome,
  /** `device_oom` on a text that can mean something else: to be tried once smaller before it is believed. */
  ambiguous: z.boolean(),
  /** Where it failed; null when it fit. */
  phase: phase.nullable(),
  peaks,
  ...measuredSteps.shape,
  /** The allocator had not come to rest when the probe ended, for all the steps that it was given. */
  restless: z.boolean().optional(),
  /** Bytes by which memory rises with each step and will go on to: what the loop leaves, or a restless allocator takes. */
  rise_bytes_per_step: measuredBytes.optional(),
  /** Too few samples for the script, which trains at its own batch: the sizes begin here instead. */
  begin_at: count.optional(),
  /** Its batch could not be cut: nothing was trained. */
  uncut: z.boolean().optional(),
  /** It ran with an allocator whose segments can grow. */
  expandable_segments: z.boolean().optional(),
  /** The value of the command's own knob that is searched. */
  knob: knobValue.optional(),
  /** Seconds per optimizer step of that accumulation in the steady state (median). */
  step_s: seconds.nullable(),
  /** Samples trained a second, on all devices together. */
  samples_per_s: rate.nullable().optional(),
  /** Seconds from when it was asked for to its verdict, data and first step included; of its process's start, nothing. */
  wall_s: seconds.optional(),
  /** Bytes of the allocation that was refused; null if none. */
  refused_bytes: measuredBytes,
  /** Bytes that the caching allocator held then in pieces that no tensor used, and that the device had free. */
  unallocated_bytes: measuredBytes.optional(),
  free_bytes: measuredBytes.optional(),
  /** The line that proves the outcome; null when it fit. */
  evidence: text(65_536).nullable(),
  /** Whether the same process can take another probe. */
  alive: z.boolean(),
  /** Its launch can be forked: a fresh process takes no further launch. Absent: it cannot. */
  renewable: z.boolean().optional(),
});
export type Observation = z.infer<typeof observation>;

/** The process that it ran in. */
export const lifeOf = ({ life, launch }: Pick<Observation, 'life' | 'launch'>): number => life ?? launch;

/** A probe in `find-batch --json` and in the `probes` field of a recommendation. */
export const probeRecord = z.object({
  launch: count,
  /** 1-based number of the process among all of the search, a start or a fork of one. Absent: each launch was one. */
  life: count.optional(),
  micro_batch: count,
  ...shownRung.shape,
  /** Present and true where the allocator's segments could grow. */
  expandable_segments: z.boolean().optional(),
  /** The value of the command's own knob, where that is searched. */
  knob: knobValue.optional(),
  steps: whole,
  outcome,
  peak_bytes: whole.max(Number.MAX_SAFE_INTEGER).nullable(),
  step_s: seconds.nullable(),
  /** Samples trained a second, on all devices together. Absent: recorded by an earlier version. */
  samples_per_s: rate.nullable().optional(),
  /** Seconds that it took in all, the start of its process left out. */
  wall_s: seconds.optional(),
  /** Present where the caching allocator had to give back its cache in the steady state: how often. */
  alloc_retries: whole.optional(),
  /** Of the peak what is no workspace that libraries do without; and what lay in pieces then. Absent: not known. */
  needed_bytes: whole.optional(),
  pieces_bytes: whole.optional(),
  evidence: text(65_536).nullable(),
  /** Why this size was tried then. */
  why: text(4096).optional(),
});
export type ProbeRecord = z.infer<typeof probeRecord>;

/** Speeds that decided between rungs, in the ladder's order. */
export const speedComparison = z.object({
  /** In one process, in turns; false: each in a launch of its own. */
  together: z.boolean(),
  speeds: z
    .array(
      z.object({
        ...shownRung.shape,
        micro_batch: count,
        /** On all devices: median, and half of the range over the rounds (null: there was one). */
        samples_per_s: rate,
        spread: rate.nullable(),
        rounds: count,
      }),
    )
    .max(100),
});
export type SpeedComparison = z.infer<typeof speedComparison>;

const part = whole.max(Number.MAX_SAFE_INTEGER).nullable();

/** The parts of the peak sum to `peak_bytes`; null: unknown, and counted in `rest`. `activations_per_sample` is a slope. */
export const memoryBreakdown = z.object({
  /** The size whose peak is taken apart. */
  micro_batch: count,
  accumulation: count,
  /** Highest use of the device, everything counted: what is held against the budget. */
  peak_bytes: whole,
  /** Where the framework's own peak was; null: the phases were not told apart. */
  peak_in: z.enum(['forward_backward', 'optimizer']).nullable(),
  /** Weights, frozen ones included. */
  parameters: part,
  gradients: part,
  optimizer_state: part,
  /** What forward and backward hold for the samples, beside all gradients. */
  activations: part,
  /** What one more sample adds: the slope of the forward and backward peaks. */
  activations_per_sample: part,
  /** Reserved by the caching allocator, but in no tensor at the allocated peak; null: no such allocator. */
  allocator_slack: part,
  /** Held by the driver beside the allocator: the CUDA context, libraries' own memory; null on the CPU. */
  context: part,
  /** All else: buffers, data, workspaces, the optimizer's temporaries, and whatever is null above. */
  rest: whole,
});
export type MemoryBreakdown = z.infer<typeof memoryBreakdown>;

/** Peak memory by micro-batch on one rung, for a chart. Bytes. */
export const curve = z.object({
  rung: z.string(),
  /** `[micro-batch, peak]` of what fitted, ascending. */
  fits: z.array(z.tuple([z.number(), z.number()])),
  /** Micro-batches that ran out of memory, ascending; what they would have needed is not known. */
  failed: z.array(z.number()),
  /** The model's line: peak = base + slope x micro-batch; null: fewer than two sizes are known. */
  line: z.object({ base: z.number(), slope: z.number() }).nullable(),
});
export type Curve = z.infer<typeof curve>;

export function asRecord(observation: Observation, why?: string): ProbeRecord {
  const { needed_bytes: needed = null, pieces_bytes: pieces = null } = observation.peaks;
  return {
    launch: observation.launch,
    ...(observation.life === undefined ? {} : { life: observation.life }),
    micro_batch: observation.micro_batch,
    ...shown({ ...observation.rung, expandable_segments: observation.expandable_segments }),
    ...(observation.knob === undefined ? {} : { knob: observation.knob }),
    steps: observation.steps,
    outcome: observation.outcome,
    peak_bytes: observation.peaks.total_bytes,
    step_s: observation.step_s,
    samples_per_s: observation.samples_per_s ?? null,
    wall_s: observation.wall_s,
    ...(observation.alloc_retries > 0 ? { alloc_retries: observation.alloc_retries } : {}),
    ...(needed === null ? {} : { needed_bytes: needed }),
    ...(pieces === null ? {} : { pieces_bytes: pieces }),
    evidence: observation.evidence,
    ...(why === undefined ? {} : { why }),
  };
}
