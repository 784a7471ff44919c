import { asRecord, type Observation, type Probe } from '../../contract/measurement.js';
import { sameRung } from '../../contract/rung.js';
import { doubtOf, Tuner, valuesBetween } from '../../tuner/index.js';
import type { Action, Constraints } from '../../tuner/types.js';
import { allowedRungs } from '../search/constraints.js';
import { DroppedRungs } from '../search/dropped-rungs.js';
import { Prober } from '../search/prober.js';
import { type SearchOutcome, seenBy } from '../search/search.js';
import type { Target } from '../target.js';
import type { KnobWish, WorkDeps, WorkRequest } from '../types.js';
import { LARGEST, ScriptBound } from './script-bound.js';

/** Tried first where nobody said a smallest value: one is no length of a sequence, and no side of an image. */
export const FIRST = 64;

/** What a search of a knob ended with. `size`s in the action are values of the knob. */
export interface KnobOutcome extends SearchOutcome {
  /** Where the script itself ends the values; null: it does not, as far as they were tried. */
  crash: Observation | null;
  /** Whether that is where a largest value lies. */
  scriptEndsAt: (max: number) => boolean;
  /** Null: round numbers were tried. */
  multipleOf: number | null;
  /** The largest value that the options allow. */
  most: number;
}

/**
 * Looks for the largest value of a knob of the command's own, which otherwise runs as it stands. The tuner sees the values in the
 * place of micro-batches. Each is a launch, so each is proved by a fresh process.
 */
export class KnobSearch {
  readonly #prober: Prober;
  readonly #journal: Observation[] = [];
  readonly #whys: string[] = [];
  readonly #dropped: DroppedRungs;
  readonly #bound: ScriptBound;
  readonly #notes: string[] = [];

  constructor(
    private readonly request: WorkRequest,
    private readonly deps: WorkDeps,
    private readonly target: Target,
    private readonly wish: KnobWish,
  ) {
    this.#prober = new Prober(request, deps, target, 'search');
    this.#dropped = new DroppedRungs(target.baseRung);
    this.#bound = new ScriptBound(wish);
  }

  async run(): Promise<KnobOutcome> {
    const { signal, progress } = this.deps;
    const stop = (): void => this.#prober.interrupt();
    signal.addEventListener('abort', stop);
    try {
      for (;;) {
        signal.throwIfAborted();
        const action = this.#next();
        if (action.type !== 'probe') return this.#outcome(action);
        const probe = this.#inPlace(action.probe);
        const observation = await this.#prober.measure(probe);
        signal.throwIfAborted();
        this.#journal.push(observation);
        this.#whys.push(probe.why);
        progress({ type: 'probe', observation, record: asRecord(observation, probe.why) });
        this.#judge(observation);
      }
    } finally {
      signal.removeEventListener('abort', stop);
      await this.#prober.close();
    }
  }

  #next(): Action {
    const told = this.#told.map(asSize);
    const known = this.#bound.note;
    const spent = new Set(told.map(({ launch }) => launch)).size >= (this.request.options.maxLaunches ?? Infinity);
    const bound = spent ? null : this.#bound.next(told);
    const last = told.at(-1);
    if (bound !== null && last !== undefined) {
      const { rung, expandable_segments: expandable } = last;
      const { steps } = this.request.options;
      const { size: micro_batch, why } = bound;
      const how = { steps, rest_steps: 0, ...doubtOf(this.target.memory.roomBytes, { steady: true }), fresh: true };
      const grown = expandable ? { expandable_segments: true } : {};
      return { type: 'probe', probe: { rung, micro_batch, accumulation: 1, ...how, ...grown, purpose: 'bound', why } };
    }
    if (this.#bound.note !== null && known === null) this.#note(this.#bound.note);
    const tuner = new Tuner(this.#constraints());
    for (const one of told) tuner.tell(one);
    return tuner.next();
  }

  /** What the tuner is told: what the script itself crashed with says nothing of memory. */
  get #told(): Observation[] {
    const segments = this.#dropped.segments;
    return this.#journal.filter(
      (one) =>
        !this.#dropped.has(one.rung) && !(segments && one.expandable_segments) && !this.#bound.isCrash(asSize(one)),
    );
  }

  #judge(observation: Observation): void {
    const { rung, expandable_segments: expandable, outcome } = observation;
    if (outcome === 'fit') return;
    const ran = this.#journal.some(
      (one) => one.outcome === 'fit' && sameRung(one.rung, rung) && one.expandable_segments === expandable,
    );
    const before = this.#dropped.notes();
    if (!ran && this.#dropped.drops(observation, this.#constraints().rungs)) {
      for (const text of this.#dropped.notes().slice(before.length)) this.#note(text);
      return;
    }
    this.#bound.learn(asSize(observation), this.#told.map(asSize));
  }

  #note(text: string): void {
    this.#notes.push(text);
    this.deps.progress({ type: 'note', text });
  }

  /** The tuner's probe of a size as one of the knob's value. */
  #inPlace(probe: Probe): Probe {
    const { own } = this.target;
    return {
      ...probe,
      knob: { name: this.wish.name, value: probe.micro_batch },
      micro_batch: own.microBatch ?? this.request.options.minBatch,
      accumulation: own.accumulation ?? 1,
      batch: null,
      why: this.#ofKnob(probe.why),
    };
  }

  /** The tuner's words on micro-batches, of the knob. */
  #ofKnob(text: string): string {
    return text.replace(/micro-batch(?:es)?/gi, this.wish.name).replace(/\bsize/g, 'value');
  }

  #constraints(): Constraints {
    const { request, target, wish } = this;
    const { options } = request;
    const least = wish.min ?? 1;
    const most = Math.min(wish.max ?? LARGEST, this.#bound.most(this.#told.map(asSize)) ?? LARGEST);
    return {
      rungs: allowedRungs(target, options, this.#prober.facts.loop?.can ?? null).filter(
        (rung) => !this.#dropped.has(rung),
      ),
      minBatch: least,
      maxBatch: most,
      effectiveBatch: null,
      worldSize: target.worldSize,
      accumulation: 'off',
      objective: 'max-batch',
      headroomPct: options.headroomPct,
      budgetBytes: target.memory.roomBytes,
      steps: options.steps,
      driven: false,
      switches: false,
      maxLaunches: options.maxLaunches,
      ownBatch: null,
      goal: 'search',
      knownBad: null,
      value: {
        multipleOf: this.#bound.multipleOf,
        first: wish.min === null && FIRST <= most ? FIRST : null,
      },
      ...(target.expandableSegments === 'out of the question' || this.#dropped.segments
        ? {}
        : { expandable: target.expandableSegments }),
    };
  }

  #outcome(reached: Exclude<Action, { type: 'probe' }>): KnobOutcome {
    const { crash } = this.#bound;
    const action: typeof reached =
      reached.type === 'exhausted' && crash !== null && this.#journal.every((one) => one.outcome !== 'device_oom')
        ? { type: 'failed', failure: crash.outcome as 'user_error', evidence: crash.evidence }
        : reached;
    return {
      action:
        action.type === 'found'
          ? { type: 'found', answer: { ...action.answer, notes: action.answer.notes.map((one) => this.#ofKnob(one)) } }
          : action.type === 'exhausted'
            ? { ...action, why: this.#ofKnob(action.why) }
            : action,
      ...seenBy(this.#prober, this.#journal),
      diagnosis: this.#prober.diagnosis,
      refused: false,
      whys: this.#whys,
      notes: this.#notes,
      crash: crash === null ? null : (this.#journal.find((one) => one.knob?.value === crash.micro_batch) ?? null),
      scriptEndsAt: (max) => this.#bound.ends(max),
      multipleOf: this.#bound.multipleOf,
      most: valuesBetween(this.wish.min ?? 1, this.wish.max ?? LARGEST, this.#bound.multipleOf)?.hi ?? LARGEST,
    };
  }
}

/** An observation as the tuner sees it. Samples a second fall as the value rises, so speed decides nothing. */
export function asSize({ knob, ...observation }: Observation): Observation {
  return { ...observation, micro_batch: knob?.value ?? observation.micro_batch, accumulation: 1, step_s: null };
}
