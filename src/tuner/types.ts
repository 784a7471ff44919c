import type { FailureClass } from '../contract/failure.js';
import type { Probe } from '../contract/measurement.js';
import type { Objective } from '../contract/options.js';
import type { Config, Rung } from '../contract/rung.js';
/** The limits of a search. Counts are samples per device and forward pass unless they say otherwise. */
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
  /** The hook drives the loop, so one process can run many sizes. */
  driven: boolean;
  /** Such a process can switch rungs. */
  switches: boolean;
  /** Checkpointing can take some of the model's blocks. Absent: all or none. */
  someBlocks?: boolean;
  /** Each byte is counted where it is taken, and nothing lies in an allocator's cache: host memory, and XLA's pool. Absent: it is not so. */
  counted?: boolean;
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
  /** What is searched is no micro-batch but a value of the command's own, whose memory may rise with its square; absent: it is. */
  value?: {
    /** Only multiples of it; null: numbers as round as the answer's precision allows. */
    multipleOf: number | null;
    /** Tried first; null: the smallest is. */
    first: number | null;
  };
  /** Segments of the caching allocator that can grow: they can be turned on, or the user has. Absent: neither. */
  expandable?: 'possible' | 'on';
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
