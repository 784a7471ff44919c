import { formatBytes } from '../../common/size.js';
import type { Diagnosis } from '../../contract/diagnosis.js';
import type { Loop } from '../../contract/hook.js';
import { asRecord, type Observation } from '../../contract/measurement.js';
import { ALLOWANCES, type Cut, type HookKnob, type Rung } from '../../contract/rung.js';
import { Tuner } from '../../tuner/index.js';
import type { Action, Constraints } from '../../tuner/types.js';
import { Detached } from '../launch/detached.js';
import type { Session } from '../launch/session.js';
import type { Target } from '../target.js';
import type { WorkDeps, WorkRequest } from '../types.js';
import { constraintsOf, inTokens, withLoop } from './constraints.js';
import { DroppedRungs, withRung } from './dropped-rungs.js';
import { Prober } from './prober.js';
import { uncutFor } from './undriveable.js';

/** What was seen of a command. */
export interface Seen {
  observations: readonly Observation[];
  /** The reason of each of the `observations`; null: an earlier process made it. */
  whys: readonly (string | null)[];
  torch: string | null;
  /** Where the hook cut the batches; null: it did not. */
  cut: Cut | null;
  /** The script's own settings, as the hook saw them. */
  loop: Loop | null;
}

/** The result of a search. */
export interface SearchOutcome extends Seen {
  action: Exclude<Action, { type: 'probe' }>;
  /** The kinds of the modules whose calls were cut before a size ran out of memory; null: not told. */
  cutCalls: readonly string[] | null;
  launches: number;
  /** Those of an earlier process included. */
  allLaunches: WorkRequest['launches'];
  /** Seconds from the first launch to its training loop; null: no hook told. */
  startupSeconds: number | null;
  /** Samples in the data set, if they bound the sizes; null: not known. */
  samples: number | null;
  /** The script took no batch from us, so it cannot be tuned. */
  undriveable: boolean;
  notes: string[];
  /** Of the last launch that died; null: none did. */
  diagnosis: Diagnosis | null;
  /** It ended as the batch cannot be cut, however its last launch died. */
  refused: boolean;
}

/** What of an outcome the prober and the journal tell, however it ended. */
export const seenBy = (
  { launches, startupSeconds, torch, cut, cutCalls, facts: { loop, samples }, undriveable }: Prober,
  journal: readonly Observation[],
) => ({
  observations: journal,
  launches: new Set(journal.map(({ launch }) => launch)).size,
  allLaunches: launches,
  startupSeconds,
  torch,
  cut,
  cutCalls,
  loop,
  samples,
  undriveable,
});

/** Drives the tuner: runs its probes, records each observation, and passes it on. */
export class Search {
  readonly #prober: Prober;
  readonly #journal: Observation[] = [];
  readonly #whys: (string | null)[] = [];
  readonly #dropped: DroppedRungs;

  constructor(
    private readonly request: WorkRequest,
    private readonly deps: WorkDeps,
    private readonly target: Target,
    private readonly goal: Constraints['goal'],
    /** A job that has failed, whose spare may wait. */
    spare: Session | null = null,
  ) {
    this.#dropped = new DroppedRungs(target.baseRung);
    this.#prober = new Prober(request, deps, target, goal, spare);
  }

  /** Searches to the end and leaves no process behind. Rejects with the signal's reason. */
  async run(): Promise<SearchOutcome> {
    const { signal } = this.deps;
    const prober = this.#prober;
    const stop = (): void => prober.interrupt();
    signal.addEventListener('abort', stop);
    try {
      signal.throwIfAborted();
      await prober.begin(this.target.baseRung, this.#beginsGrowing());
      const journal = this.#journal;
      journal.push(...this.request.journal);
      this.#whys.push(...journal.map(() => null));
      prober.facts.hasLearned(); // the first tuner knows it
      let tuner = this.#tuner();
      for (;;) {
        const action = tuner.next();
        if (action.type !== 'probe') return this.#outcome(action);
        const before = prober.diagnosis;
        const observation = await prober.measure(action.probe);
        signal.throwIfAborted();
        journal.push(observation);
        this.#whys.push(action.probe.why);
        await this.deps.persist({ journal });
        this.deps.progress({ type: 'probe', observation, record: asRecord(observation, action.probe.why) });
        if (this.#cannotCut(observation)) {
          // A rung that takes the whole batch at once needs no cut.
          prober.diagnosis = before;
          this.deps.progress({ type: 'note', text: this.#notes().at(-1) as string });
          tuner = this.#tuner();
        } else if (observation.unchunked) {
          this.deps.progress({ type: 'note', text: this.#notes().at(-1) as string });
          tuner = this.#tuner();
        } else if (this.#dropped.drops(observation, this.#constraints().rungs)) {
          // Whatever it looked like, it says nothing of the command.
          prober.diagnosis = before;
          prober.undriveable = false;
          this.deps.progress({ type: 'note', text: this.#dropped.notes().at(-1) as string });
          tuner = this.#tuner();
        } else if (prober.facts.hasLearned()) tuner = this.#tuner();
        else tuner.tell(observation);
      }
    } finally {
      signal.removeEventListener('abort', stop);
      await prober.close();
      if (signal.aborted && signal.reason instanceof Detached) this.deps.log.info('the search is left where it stands');
    }
  }

  /** A tuner that knows the observations on the rungs that are left. Bounds change with what the first step shows of the loop. */
  #tuner(): Tuner {
    const constraints = this.#constraints();
    for (const seen of this.#journal) this.#dropped.drops(seen, constraints.rungs);
    const unable = this.#unable;
    const left = (rung: Rung): boolean => !this.#dropped.has(rung) && !unable.some((knob) => rung[knob]);
    const { expandable, ...rest } = constraints;
    const grows = expandable !== undefined && !this.#dropped.segments;
    const tuner = new Tuner({
      ...rest,
      rungs: constraints.rungs.filter(left),
      someBlocks: constraints.someBlocks === true && !this.#dropped.someBlocks,
      ...(grows ? { expandable } : {}),
    });
    // If the batch cannot be cut, measurements of its parts say nothing.
    const whole = (one: Observation): boolean => this.#refusal === null || (!one.uncut && one.accumulation === 1);
    const observations = this.#journal.filter(
      (one) => left(one.rung) && whole(one) && (grows || !one.expandable_segments),
    );
    const alive = observations.at(-1) === this.#journal.at(-1);
    for (const [at, seen] of observations.entries())
      tuner.tell(alive || at < observations.length - 1 ? seen : { ...seen, alive: false, renewable: false });
    return tuner;
  }

  /** Whether the first probe uses expandable segments, as all do except that of a batch which is to stay as it is, and may fit. */
  #beginsGrowing(): boolean {
    if (this.target.expandableSegments !== 'possible') return false;
    const { options, journal } = this.request;
    return this.goal === 'search' || options.effectiveBatch !== null || journal.some((o) => o.outcome === 'device_oom');
  }

  /** Whether the hook has refused to cut, and something is left that needs no cut. */
  #cannotCut({ uncut, accumulation }: Observation): boolean {
    return uncut === true && accumulation > 1 && this.request.options.accumulation === 'auto';
  }

  /** The first refusal to cut the batch; null: none. */
  get #refusal(): Observation | null {
    return this.#journal.find((one) => this.#cannotCut(one)) ?? null;
  }

  /** Whether another rung's micro-batches ran out of memory: that, and not a rung that cannot be cut, is why nothing fits. */
  get #wasCut(): boolean {
    return this.#journal.some((one) => one.accumulation > 1 && !one.uncut && one.outcome === 'device_oom');
  }

  /** Why the loss cannot be computed in chunks; null: it can, as far as known. */
  get #unchunked(): string | null {
    return this.#journal.find((one) => one.unchunked)?.unchunked ?? null;
  }

  /** The hook's knobs that did nothing when they were on. */
  get #unable(): HookKnob[] {
    return this.#unchunked === null ? [] : ['chunked_loss'];
  }

  #notes(end: Observation | null = null): string[] {
    const why = this.#refusal?.evidence ?? null;
    const uncut = why === null ? [] : [`${why} Only what takes the whole batch at once is tried.`];
    const { apart } = this.#prober;
    const alone =
      apart === null
        ? []
        : [`Each size takes a process of its own: a second one failed in that of the first (${apart}).`];
    const { chunkedLoss } = this.request.options;
    const unchunked = this.#unchunked ?? (chunkedLoss === 'off' ? null : this.#prober.facts.loop?.why_not.chunked_loss);
    const whole = unchunked == null ? [] : [`The loss is not computed in chunks: ${unchunked}.`];
    return [...this.#dropped.notes(end), ...alone, ...uncut, ...whole, ...this.#unavailable, ...this.#limitedPool()];
  }

  /** What was allowed and cannot be had, with the reason. */
  get #unavailable(): string[] {
    const { loop } = this.#prober.facts;
    return (this.request.options.allow ?? []).flatMap((name) => {
      const why = loop?.why_not[ALLOWANCES[name]];
      return why === undefined ? [] : [`${name} cannot be had: ${why}.`];
    });
  }

  /** Why the optimizer's state has to be on the device, where nothing fits. */
  get #unmoved(): string[] {
    const why = this.#prober.facts.loop?.why_not.optimizer_on_host;
    return why === undefined ? [] : [`The optimizer's state cannot wait in host memory: ${why}.`];
  }

  #limitedPool(): string[] {
    const { mostBytes } = this.#prober.facts;
    const { roomBytes } = this.target.memory;
    if (mostBytes === null || mostBytes >= roomBytes) return [];
    const part = `${formatBytes(mostBytes)} of ${formatBytes(roomBytes)}`;
    return [
      `JAX's memory pool lets the program take ${part}: XLA_PYTHON_CLIENT_MEM_FRACTION sets the pool's part (JAX's own default is 0.75).`,
    ];
  }

  #outcome(reached: Exclude<Action, { type: 'probe' }>): SearchOutcome {
    const refusal = this.#refusal;
    const action: typeof reached =
      reached.type === 'exhausted' && refusal !== null && !this.#wasCut
        ? { type: 'failed', failure: 'user_error', evidence: refusal.evidence }
        : reached;
    const times = this.target.loopAccumulation;
    const { diagnosis, facts } = this.#prober;
    const failed =
      action.type === 'failed' ? (this.#journal.findLast(({ outcome }) => outcome === action.failure) ?? null) : null;
    return {
      action:
        action.type === 'found'
          ? { type: 'found', answer: inTokens(withLoop(action.answer, times), facts.longestTokens) }
          : action,
      ...seenBy(this.#prober, this.#journal),
      diagnosis:
        reached !== action
          ? uncutFor(refusal?.evidence ?? null, facts.loop, this.request.options)
          : diagnosis && failed
            ? withRung(diagnosis, failed.rung, this.target.baseRung)
            : diagnosis,
      refused: reached !== action,
      whys: this.#whys,
      notes: [...this.#notes(failed), ...(action.type === 'exhausted' ? this.#unmoved : [])],
    };
  }

  /** The bounds in the loop's own batches, without the accumulation that it does by itself. */
  #constraints(): Constraints {
    const options =
      this.#refusal === null ? this.request.options : { ...this.request.options, accumulation: 'off' as const };
    return constraintsOf(options, this.target, this.goal, this.#prober.facts, this.#unable);
  }
}
