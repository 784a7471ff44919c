import { Tuner } from '../tuner/index.js';
import type { Action, Constraints, Observation } from '../tuner/types.js';
import { constraintsOf, withLoop } from './constraints.js';
import { Detached } from './detached.js';
import { samplesPerSecond } from './observe.js';
import { probeRecord } from './probe-record.js';
import { Prober } from './prober.js';
import type { SearchOutcome } from './search-outcome.js';
import type { Target } from './target.js';
import type { WorkDeps, WorkRequest } from './types.js';

export type { SearchOutcome };

/** Drives the tuner: has its probes run, writes down what came of each, and tells it. */
export class Search {
  readonly #request: WorkRequest;
  readonly #deps: WorkDeps;
  readonly #target: Target;
  readonly #goal: Constraints['goal'];
  readonly #prober: Prober;
  readonly #whys: (string | null)[] = [];

  constructor(request: WorkRequest, deps: WorkDeps, target: Target, goal: Constraints['goal']) {
    this.#request = request;
    this.#deps = deps;
    this.#target = target;
    this.#goal = goal;
    this.#prober = new Prober(request, deps, target, goal);
  }

  /** Searches to the end. Leaves no process behind, however it ends; rejects with the signal's reason when aborted. */
  async run(): Promise<SearchOutcome> {
    const { signal } = this.#deps;
    const prober = this.#prober;
    const stop = (): void => prober.interrupt();
    signal.addEventListener('abort', stop);
    try {
      signal.throwIfAborted();
      await prober.begin();
      let tuner = new Tuner(this.#constraints());
      const journal: Observation[] = [];
      for (const observation of this.#request.journal) {
        tuner.tell(observation);
        journal.push(observation);
        this.#whys.push(null);
      }
      for (;;) {
        const action = tuner.next();
        if (action.type !== 'probe') return this.#outcome(action, tuner);
        const observation = await prober.measure(action.probe);
        signal.throwIfAborted();
        journal.push(observation);
        this.#whys.push(action.probe.why);
        await this.#deps.persist({ journal });
        if (prober.hasLearned()) {
          // What the loop does by itself shows at its first step only: the bounds are drawn anew, what was seen stays.
          tuner = new Tuner(this.#constraints());
          for (const earlier of journal.slice(0, -1)) tuner.tell(earlier);
        }
        tuner.tell(observation);
        this.#deps.progress({
          type: 'probe',
          observation,
          record: probeRecord(observation, action.probe.why),
          samplesPerSecond: samplesPerSecond(observation, this.#target.loopAccumulation),
        });
      }
    } finally {
      signal.removeEventListener('abort', stop);
      await prober.close();
      if (signal.aborted && signal.reason instanceof Detached)
        this.#deps.log.info('the search is left where it stands');
    }
  }

  #outcome(action: Exclude<Action, { type: 'probe' }>, tuner: Tuner): SearchOutcome {
    const times = this.#target.loopAccumulation;
    const { launches, startupSeconds, torch, loop, diagnosis, undriveable } = this.#prober;
    return {
      action: action.type === 'found' ? { type: 'found', answer: withLoop(action.answer, times) } : action,
      observations: tuner.observations,
      launches: new Set(tuner.observations.map((observation) => observation.launch)).size,
      allLaunches: launches,
      startupSeconds,
      torch,
      loop,
      diagnosis,
      undriveable,
      whys: this.#whys,
    };
  }

  /** The search's bounds, in the loop's own batches: what it accumulates by itself is none of the tuner's business. */
  #constraints(): Constraints {
    const { loop, ownAmp } = this.#prober;
    return constraintsOf(this.#request.options, this.#target, this.#goal, loop, ownAmp);
  }
}
