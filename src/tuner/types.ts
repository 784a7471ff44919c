/** The words of the tuner. Bytes are bytes, seconds are seconds; nothing here does I/O. */

export type Amp = 'off' | 'bf16' | 'fp16';

/** One combination of amp and checkpointing (and, last on the ladder, of activations kept in host memory). */
export interface Rung {
  amp: Amp;
  checkpointing: boolean;
  /** Saved activations are moved to host memory. Only ever on the last rung, and only where the hook can do it. */
  offload?: boolean;
}

export type FailureClass =
  | 'device_oom'
  | 'host_oom'
  | 'shm'
  | 'disk_full'
  | 'network'
  | 'device_fault'
  | 'user_error'
  | 'timeout'
  | 'killed'
  | 'cancelled';

export type Objective = 'max-batch' | 'throughput';

/** What the search has to respect. Counts are samples per device and forward pass unless they say otherwise. */
export interface Constraints {
  /** The allowed rungs, in the order in which they are to be tried. */
  rungs: Rung[];
  minBatch: number;
  /** Largest micro-batch to consider; null: no limit. */
  maxBatch: number | null;
  /** Samples per optimizer step over all devices; null: the user did not fix one. */
  effectiveBatch: number | null;
  worldSize: number;
  accumulation: 'auto' | 'off';
  objective: Objective;
  /** Part of the budget that `config` leaves free, in per cent. */
  headroomPct: number;
  /** All bytes that the job may hold on one device, contexts included. */
  budgetBytes: number;
  /** Optimizer steps of a probe, at least 2. */
  steps: number;
  /** One process can be asked for many sizes, as far as is known before it is: the hook drives its loop. */
  driven: boolean;
  /** Such a process can be taken from rung to rung. */
  switches: boolean;
  maxLaunches: number | null;
  /** The micro-batch that the script asks for by itself: tried first on the first rung; null: unknown. */
  ownBatch: number | null;
  /**
   * `search`: find the largest. `keep`: the user's effective batch is to be kept; if `ownBatch` fits on the first rung
   * it is the answer at once, whatever headroom it leaves: the job then runs exactly as it stands.
   */
  goal: 'search' | 'keep';
  /** Smallest micro-batch that an earlier run proved not to fit on the first rung; null: none known. */
  knownBad: number | null;
  /** The caching allocator can be given segments that can grow. Absent: it cannot, or they are its user's business. */
  expandable?: boolean;
}

/** One micro-batch size to be measured on a rung. */
export interface Probe {
  rung: Rung;
  micro_batch: number;
  /** Micro-batches per optimizer step while probing: 2 where the answer will accumulate (gradients stay resident). */
  accumulation: number;
  /** Samples of the batch of which these micro-batches are parts; null or absent: `accumulation` times as many. */
  batch?: number | null;
  steps: number;
  /**
   * The probe goes on, within reason, until a caching allocator has asked the driver for nothing in this many steps: before
   * it has come to rest, the next step may be the one that it cannot place. 0: `steps` are enough.
   */
  rest_steps: number;
  /**
   * Memory that rises by more than so many bytes with each step is measured on until `growthSteps`: from there on it can be
   * told whether it goes on rising.
   */
  growth_bytes: number;
  growth_steps: number;
  /** True: must be the first thing that a new process runs. False: may share the process of the probe before. */
  fresh: boolean;
  /** In a process whose caching allocator has segments that can grow. */
  expandable_segments?: boolean;
  purpose: 'own' | 'floor' | 'climb' | 'bound' | 'verify' | 'speed';
  /** One sentence for a person: why this size, now. */
  why: string;
}

/** Peaks of one probe, in bytes; null where the launch could not measure it. */
export interface Peaks {
  /** Highest driver-level (ledger) use, everything counted: this is what is compared with the budget. */
  total_bytes: number | null;
  /** Highest allocated by the framework in forward and backward, and in the optimizer's step. */
  forward_backward_bytes: number | null;
  optimizer_bytes: number | null;
  /** Highest reserved by the framework's caching allocator. */
  reserved_bytes: number | null;
  /** Bytes in use when a step starts: parameters, optimizer state, and gradients when accumulating. */
  resident_bytes: number | null;
  /** What stays from step to step, as the framework's own objects tell: weights, all gradients, the optimizer's state. */
  parameter_bytes?: number | null;
  gradient_bytes?: number | null;
  optimizer_state_bytes?: number | null;
}

/** What came of a probe. */
export interface Observation {
  rung: Rung;
  micro_batch: number;
  accumulation: number;
  /** 1-based number of the launch that it ran in. */
  launch: number;
  /** It was the first probe of its launch. */
  fresh: boolean;
  steps: number;
  outcome: 'fit' | FailureClass;
  /** `device_oom` on a text that can mean something else: to be tried once smaller before it is believed. */
  ambiguous: boolean;
  /** Where it failed; null when it fit. `load`: before the first step. */
  phase: 'load' | 'train' | 'eval' | 'save' | 'unknown' | null;
  peaks: Peaks;
  /** Allocator retries in the steady state (after the first step): it fits, but slowly. */
  alloc_retries: number;
  /** The allocator had not come to rest when the probe ended, for all the steps that it was given. */
  restless?: boolean;
  /** Bytes by which memory rose with each step, as far as it can be told; what rises will have risen more after 200. */
  rise_bytes_per_step?: number | null;
  /** The part of it that the loop itself leaves behind: no allocator that comes to rest by and by. */
  growth_bytes_per_step?: number | null;
  /** Its batch could not be cut: nothing was trained. */
  uncut?: boolean;
  /** The loop ended by itself: no more steps of it can be measured. */
  short?: boolean;
  /** It ran with an allocator whose segments can grow. */
  expandable_segments?: boolean;
  /** The variable of the script that keeps it, with its line; null: not seen. */
  kept_by?: string | null;
  /** Seconds per optimizer step of that accumulation in the steady state (median); null if unknown. */
  step_s: number | null;
  /** Samples trained a second, on all devices together; null if unknown. */
  samples_per_s?: number | null;
  /** Seconds from when it was asked for to its verdict, data and first step included; of its process's start, nothing. */
  wall_s?: number;
  /** Bytes of the allocation that was refused; null if unknown or none. */
  refused_bytes: number | null;
  /** Bytes that the caching allocator held then in pieces that no tensor used, and that the device had free; null: unknown. */
  unallocated_bytes?: number | null;
  free_bytes?: number | null;
  /** The line that proves the outcome; null when it fit. */
  evidence: string | null;
  /** Whether the same process can take another probe. */
  alive: boolean;
}

/** The four knobs (and world size) as they reach the command. effective = micro x accumulation x world. */
export interface Config {
  micro_batch: number;
  accumulation: number;
  world_size: number;
  effective_batch: number;
  amp: Amp;
  checkpointing: boolean;
  /** Present and true only on the offload rung. */
  offload?: boolean;
  /** Present and true where it was shown with segments of the caching allocator that can grow, and is to be run so. */
  expandable_segments?: boolean;
}

export interface Answer {
  config: Config;
  max_micro_batch: number;
  /** Peak of `config`, bytes. */
  peak_bytes: number | null;
  /** Free part of the budget at `config`, per cent, one decimal. */
  headroom_pct: number | null;
  samples_per_s: number | null;
  verified_steps: number;
  /** With objective throughput: the speeds that decided on the rung, the answer's among them; absent: there was one rung only. */
  comparison?: Comparison;
  /** Smallest size seen to fail on the answer's rung; null: none was. */
  known_bad_micro_batch: number | null;
  /** Sentences to show: which nearest effective batch was used and why, retries at the limit, … */
  notes: string[];
}

/** Speeds of rungs, in the ladder's order. */
export interface Comparison {
  /** In one process, in turns; false: each in a launch of its own. */
  together: boolean;
  speeds: RungSpeed[];
}

/** Samples/s on all devices: median and half of the range over the rounds. */
export interface RungSpeed {
  rung: Rung;
  micro_batch: number;
  samples_per_s: number;
  /** Null: it was measured once. */
  spread: number | null;
  rounds: number;
}

export type Action =
  | { type: 'probe'; probe: Probe }
  | { type: 'found'; answer: Answer }
  /** Nothing fits. `evidence` is the line of the smallest size that failed. */
  | { type: 'exhausted'; why: string; evidence: string | null; cause?: 'growth' }
  /** A probe failed for a reason that is not memory. */
  | { type: 'failed'; failure: FailureClass; evidence: string | null };
