import type { Probe } from '../../src/contract/measurement.js';
import { type Block, CachingAllocator, OutOfMemory } from '../../src/worker/estimate/caching-allocator.js';
import { type Job, MIB, type Result } from './machine.js';
import { type MemoryScript, Stage } from './memory-script.js';
import { forwardBackward, type Network } from './networks.js';

/** Driver memory of a process beside what its allocator holds. */
const CONTEXT = 740 * MIB;
/** Steps that a worker lets a probe take at most until the allocator has come to rest. */
const MOST_STEPS = 30;

/** An allocator that keeps what the hook reads from the history of torch's: the most that lay in pieces when its cache had been given back. */
class Remembering extends CachingAllocator {
  pieces: number | null = null;

  override emptyCache(): void {
    super.emptyCache();
    if (this.expandable) this.pieces = Math.max(this.pieces ?? 0, this.reserved - this.allocated);
  }
}

/** A training process: its allocator, and what it holds from step to step. */
class Process {
  readonly memory: Remembering;
  /** Highest in forward and backward, in the optimizer's step, and when a step begins. */
  forwardBackward = 0;
  optimizer = 0;
  resident = 0;
  readonly #weights: readonly number[];
  readonly #work: (size: number, zero: () => void) => Block[];
  readonly #zeroAtEnd: boolean;
  #gradients: Block[] = [];
  #state: Block[] = [];

  constructor(model: Network | MemoryScript, limit: number, expandable: boolean) {
    const memory = new Remembering(limit, expandable);
    this.memory = memory;
    if ('unit' in model) {
      const stage = new Stage(memory, model);
      this.#weights = model.weights;
      this.#work = (size, zero) => stage.forwardBackward(size, zero);
      this.#zeroAtEnd = false;
    } else {
      this.#weights = model.layers.flatMap((layer) => layer.weights);
      this.#work = (size, zero) => forwardBackward(model, memory, size, zero);
      this.#zeroAtEnd = !model.gradientsInForward;
    }
    for (const bytes of this.#weights) memory.allocate(bytes);
  }

  /** Bytes of all weights' gradients. */
  get gradients(): number {
    return this.#weights.reduce((sum, bytes) => sum + bytes, 0);
  }

  step(size: number): void {
    const { memory } = this;
    this.resident = Math.max(this.resident, memory.allocated);
    memory.peakAllocated = memory.allocated;
    const gradients = this.#work(size, () => this.#zero());
    this.#gradients = gradients;
    this.forwardBackward = Math.max(this.forwardBackward, memory.peakAllocated);
    memory.peakAllocated = memory.allocated;
    if (this.#state.length === 0) {
      this.#state = this.#weights.flatMap((bytes) => [memory.allocate(bytes), memory.allocate(bytes)]);
    }
    for (const block of this.#weights.map((bytes) => memory.allocate(bytes))) memory.free(block);
    this.optimizer = Math.max(this.optimizer, memory.peakAllocated);
    if (this.#zeroAtEnd) this.#zero();
  }

  /** As the hook does between sizes: no gradients, no state of the optimizer, nothing cached. */
  renew(): void {
    this.#zero();
    for (const block of this.#state) this.memory.free(block);
    this.#state = [];
    this.memory.emptyCache();
    this.memory.peakReserved = this.memory.reserved;
    this.forwardBackward = this.optimizer = this.resident = 0;
  }

  #zero(): void {
    for (const block of this.#gradients) this.memory.free(block);
    this.#gradients = [];
  }
}

export interface GpuJob extends Job {
  budgetBytes: number;
  /** Whether a fresh process takes the size for so many steps. */
  lasts(size: number, steps: number, expandable?: boolean): boolean;
  /** The size before the first that fails so many steps of a fresh process: above it some may fit again. 0: none fits. */
  edge(steps: number): number;
}

/** A model on a device with a budget. A fresh probe begins a process, others renew the one there is. */
export function gpuJob(model: Network | MemoryScript, budgetBytes: number, always = false): GpuJob {
  const limit = budgetBytes - CONTEXT;
  let process: Process | null = null;
  const lasts = (size: number, steps: number, expandable = always): boolean =>
    survives(() => {
      const alone = new Process(model, limit, expandable);
      for (let n = 0; n < steps; n += 1) alone.step(size);
    });
  return {
    budgetBytes,
    lasts,
    edge: (steps) => {
      let high = 1;
      while (lasts(high, steps)) high *= 2;
      let low = Math.floor(high / 2);
      while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (lasts(middle, steps)) low = middle;
        else high = middle;
      }
      // A bisection may have stepped over sizes that fail.
      let size = Math.floor(0.88 * low);
      while (lasts(size + 1, steps)) size += 1;
      return size;
    },
    run: (probe, warm) => {
      if (warm) process?.renew();
      else {
        process = null;
        if (
          !survives(() => {
            process = new Process(model, limit, probe.expandable_segments ?? always);
          })
        )
          return { outcome: 'device_oom', phase: 'load' };
      }
      return measure(process as unknown as Process, probe);
    },
  };
}

function survives(work: () => void): boolean {
  try {
    work();
    return true;
  } catch (error) {
    if (error instanceof OutOfMemory) return false;
    throw error;
  }
}

function measure(process: Process, probe: Probe): Result {
  const { memory } = process;
  let retries = 0;
  let quiet = 0;
  let steps = 0;
  const most = () => (retries > 0 ? (probe.rest_within ?? MOST_STEPS) : MOST_STEPS);
  const survived = survives(() => {
    while (
      steps < probe.steps ||
      (quiet < probe.rest_steps && steps < most()) ||
      (retries > 0 && steps < (probe.retry_steps ?? 0))
    ) {
      const [segments, before] = [memory.segments, memory.retries];
      process.step(probe.micro_batch);
      steps += 1;
      // The hook's history begins after the first step.
      if (steps === 1) memory.pieces = null;
      quiet = memory.segments === segments && memory.retries === before ? quiet + 1 : 0;
      if (steps > 1) retries += memory.retries - before;
    }
  });
  if (!survived) {
    return {
      outcome: 'device_oom',
      refused_bytes: memory.wanted,
      unallocated_bytes: memory.reserved - memory.allocated,
      free_bytes: memory.limit - memory.reserved,
    };
  }
  return {
    outcome: 'fit',
    steps,
    alloc_retries: retries,
    restless: quiet < probe.rest_steps,
    step_s: 0.01 + 0.001 * probe.micro_batch,
    peaks: {
      total_bytes: memory.peakReserved + CONTEXT,
      forward_backward_bytes: process.forwardBackward,
      optimizer_bytes: process.optimizer,
      reserved_bytes: memory.peakReserved,
      resident_bytes: process.resident,
      gradient_bytes: process.gradients,
      pieces_bytes: memory.pieces,
    },
  };
}
