import type { Observation, Probe } from '../contract/measurement.js';
import { rungName, sameRung } from '../contract/rung.js';
import { type EffectivePlan, noSize } from './accumulation.js';
import { answerOf, bestVerified } from './answer.js';
import { ACROSS_LAUNCHES } from './contest.js';
import { failsInPieces } from './expandable-segments.js';
import { growthAction } from './growth.js';
import { bestToKeep, keepDecision } from './keep-search.js';
import { probeLength } from './probe-length.js';
import { peakOf, rateOf } from './recommend.js';
import { RungComparison, withSomeBlocks } from './rung-comparison.js';
import type { RungHistory } from './rung-history.js';
import { LARGEST, RungSearches } from './rung-searches.js';
import { type RungDecision, type RungSearch, searchRung, verificationProbe } from './search.js';
import { listed, type Sizes } from './sizes.js';
import { surveyRung } from './survey.js';
import { tooFewNote } from './too-few.js';
import type { Action, Constraints } from './types.js';

/** Peaks that differ by less count as equal. */
const SAME = 1.02;
/** A search that takes more probes or launches than this is given measurements that contradict each other. */
export const MOST_PROBES = 250;
export const MOST_LAUNCHES = 120;
/** How often one size is probed in the same way on the same rung at most: more repeats would tell nothing new. */
const MOST_REPEATS = 4;
/** How often the script's own size is probed at most, whatever the outcome. */
export const OWN_TRIES = 2;

/**
 * The search as a state machine: `next()` returns what to do, `tell()` takes the outcome. Every decision follows from the
 * constraints and the observations alone, so a journal of observations told to a new tuner brings it to the same place.
 *
 * It always ends: `tell()` only adds to the observations, and every way to another probe counts them
 * against a limit. The script's own size has OWN_TRIES; any size on any rung, probed in the same
 * way, has MOST_REPEATS; a search has MOST_PROBES and MOST_LAUNCHES. When a limit is reached the best verified answer
 * is given, or none.
 */
export class Tuner {
  readonly #searches: RungSearches;
  readonly #comparison: RungComparison;
  #next: Action | null = null;

  constructor(constraints: Constraints) {
    this.#searches = new RungSearches(constraints);
    this.#comparison = new RungComparison(this.#searches);
  }

  get observations(): readonly Observation[] {
    return this.#searches.observations;
  }

  get #constraints(): Readonly<Constraints> {
    return this.#searches.constraints;
  }

  get #plan(): EffectivePlan {
    return this.#searches.plan;
  }

  /** The same action until the next `tell()`. */
  next(): Action {
    this.#next ??= this.#decide();
    return this.#next;
  }

  tell(observation: Observation): void {
    this.#searches.observations.push(observation);
    if (this.#constraints.objective === 'throughput') this.#comparison.tell(observation);
    this.#next = null;
  }

  #decide(): Action {
    const c = this.#constraints;
    const other = this.#searches.telling.find((o) => o.outcome !== 'fit' && o.outcome !== 'device_oom');
    if (other) return { type: 'failed', failure: other.outcome as 'user_error', evidence: other.evidence };
    if (c.rungs.length === 0) return exhausted('the options leave no rung to try');
    const sizes = this.#searches.sizes();
    if (!sizes) return exhausted(noSize(c, this.#plan.perDevice));
    const doubtful = this.observations.find((o) => o.ambiguous && o.outcome !== 'fit' && this.#isSmallest(o, sizes));
    if (doubtful) return { type: 'failed', failure: 'device_oom', evidence: doubtful.evidence };
    const growth = growthAction(this.#searches.telling, c);
    if (growth) return growth;
    return this.#asItStands() ?? (c.objective === 'throughput' ? this.#fastest(sizes) : this.#first(sizes));
  }

  /** A job that is to keep its effective batch and fits as it stands runs exactly as it stands. */
  #asItStands(): Action | null {
    const { goal, objective, ownBatch, knownBad, minBatch, maxBatch } = this.#constraints;
    const perDevice = this.#plan.perDevice;
    if (goal !== 'keep' || objective !== 'max-batch' || ownBatch === null || perDevice === null) return null;
    if (perDevice % ownBatch !== 0 || ownBatch < minBatch || ownBatch > (maxBatch ?? ownBatch)) return null;
    if (knownBad !== null && ownBatch >= knownBad) return null;
    // A script's own batch that fills the budget is known to last: its user runs it.
    const rung = this.#constraints.rungs[0] as Probe['rung'];
    const own = this.#searches.telling.filter((o) => o.micro_batch === ownBatch && sameRung(o.rung, rung));
    const grows = this.#searches.grows && own.some(failsInPieces);
    const search = this.#searches.at(0, listed([ownBatch]), { mayFillBudget: true, grows });
    const { history } = search;
    if (history.isVerified(ownBatch)) {
      return this.#found(search, ownBatch, ownBatch, ['The job fits as it stands; larger sizes were not tried.']);
    }
    // It failed, or its fit is no proof: memory grows beyond the budget, or it ran for too few steps.
    const tries = own.filter((o) => (o.expandable_segments ?? false) === grows).length;
    if (history.ceiling !== null || history.smallestFailing !== null || tries >= OWN_TRIES) return null;
    const why = grows
      ? 'it failed where memory was in pieces: once more with segments that can grow'
      : 'the size that the script asks for by itself';
    return this.#probe(search, { kind: 'probe', size: ownBatch, purpose: 'own', fresh: true, why });
  }

  /** Objective max-batch: the first rung on which anything fits. */
  #first(sizes: Sizes): Action {
    const reasons: string[] = [];
    let evidence: string | null = null;
    for (const [index, rung] of this.#constraints.rungs.entries()) {
      const search = this.#searches.at(index, sizes);
      const decision = this.#decideOn(search);
      const fewer = decision.kind === 'found' ? this.#withFewerBlocks(search, decision) : null;
      if (fewer !== null) return fewer;
      if (decision.kind !== 'closed') return this.#act(search, decision);
      // Knobs are turned on at the first step: they cannot help a script that runs out of memory before it.
      if (search.driven && search.history.smallestFailure?.phase === 'load')
        return exhausted(decision.why, decision.evidence);
      reasons.push(`${rungName(rung)}: ${decision.why}`);
      evidence = decision.evidence ?? evidence;
    }
    return exhausted(reasons.join('; '), evidence);
  }

  /** The same size with as few blocks checkpointed as that takes, where no larger one is wanted; null: all of them have to be. */
  #withFewerBlocks(whole: RungSearch, { size, max }: { size: number; max: number }): Action | null {
    if (!this.#searches.keeps && (size !== max || whole.sizes.up(max + 1) !== null)) return null;
    for (const rung of withSomeBlocks(this.#searches, whole, size)) {
      const search = this.#searches.on(rung, listed([size]));
      const decision = this.#decideOn(search);
      if (decision.kind === 'closed') continue;
      const launches = decision.kind === 'probe' && this.#takesLaunch(decision, search);
      if (launches && this.#searches.launches >= (this.#constraints.maxLaunches ?? Number.POSITIVE_INFINITY))
        return null;
      const why = 'as few blocks as this size is predicted to need recompute their activations';
      const first = decision.kind === 'probe' && decision.purpose === 'floor';
      return this.#act(search, first ? { ...decision, why } : decision);
    }
    return null;
  }

  /** Objective throughput: every rung is surveyed, the fastest is searched to the end. */
  #fastest(sizes: Sizes): Action {
    const wanted = this.#comparison.wanted;
    if (wanted !== null) {
      const why = 'the rungs are compared in turns, in one process';
      const probe = { kind: 'probe' as const, size: wanted.size, purpose: 'speed' as const, fresh: false, why };
      return this.#probe(this.#searches.at(wanted.index, sizes), probe, true);
    }
    const reasons: string[] = [];
    let evidence: string | null = null;
    const { ranking } = this.#comparison;
    for (const index of ranking ?? this.#constraints.rungs.keys()) {
      const search = this.#searches.at(index, sizes);
      const decision = ranking ? this.#decideOn(search) : surveyRung(search);
      // This rung's survey has ended; the rungs are ranked when all surveys have.
      if (decision.kind === 'probe' || (decision.kind === 'found' && ranking)) return this.#act(search, decision);
      if (decision.kind === 'found') continue;
      reasons.push(`${rungName(search.rung)}: ${decision.why}`);
      evidence = decision.evidence ?? evidence;
    }
    return exhausted(reasons.join('; '), evidence);
  }

  /** The next decision on the rung whose answer is wanted. */
  #decideOn(search: RungSearch): RungDecision {
    return (this.#searches.keeps ? keepDecision(search) : null) ?? searchRung(search);
  }

  #act(search: RungSearch, decision: Exclude<RungDecision, { kind: 'closed' }>): Action {
    if (decision.kind === 'found') return this.#found(search, decision.size, decision.max, decision.notes);
    return this.#probe(search, decision);
  }

  /** The probe, unless the launches are used up; the last of them is kept for a verification. */
  #probe(search: RungSearch, wanted: RungDecision & { kind: 'probe' }, compares = false): Action {
    const { maxLaunches } = this.#constraints;
    if (!compares && this.#isSpent(wanted, search)) return this.#stop('the measurements contradict each other');
    const left = maxLaunches === null ? Number.POSITIVE_INFINITY : maxLaunches - this.#searches.launches;
    const launches = this.#takesLaunch(wanted, search);
    if (launches && left <= 0)
      return this.#stop(maxLaunches === 1 ? 'only one launch is allowed' : `only ${maxLaunches} launches are allowed`);
    const { top, largestVerified } = search.history;
    let decision = wanted;
    if (launches && left === 1 && !wanted.fresh && top !== null && !compares) {
      const choice = bestVerified(this.#plan, search) ? null : this.#plan.choices(top)?.hi;
      if (top !== largestVerified) decision = verificationProbe(search);
      else if (choice && choice !== wanted.size)
        decision = { ...wanted, size: choice, why: 'a size that the answer may have' };
    }
    const accumulation = this.#plan.probeAccumulation(decision.size);
    const proves = decision.fresh || !search.alive || decision.purpose === 'verify';
    const { smallestFailure } = search.history;
    const hasFailed = smallestFailure !== null && smallestFailure.micro_batch <= decision.size;
    const probe: Probe = {
      rung: search.rung,
      micro_batch: decision.size,
      accumulation,
      ...(accumulation > 1 ? { batch: this.#plan.perDevice } : {}),
      ...probeLength({ ...decision, proves, hasFailed }, this.#constraints, this.observations, search.grows),
      fresh: decision.fresh,
      ...(search.turnsOn ? { expandable_segments: true } : {}),
      purpose: decision.purpose,
      why: decision.why,
    };
    return { type: 'probe', probe };
  }

  /** Whether a probe needs a start of the command: neither the live process nor a fork of its launch can run it. */
  #takesLaunch({ fresh }: RungDecision & { kind: 'probe' }, { alive, rung, turnsOn }: RungSearch): boolean {
    if (!fresh && alive) return false;
    const last = this.observations.at(-1);
    if (!last?.renewable || (last.expandable_segments && !turnsOn)) return true;
    return !this.#constraints.switches && !sameRung(last.rung, rung);
  }

  /** Whether one of the limits that end every search is reached. */
  #isSpent({ size, fresh }: RungDecision & { kind: 'probe' }, { rung, turnsOn }: RungSearch): boolean {
    const same = this.observations.filter(
      (o) =>
        o.micro_batch === size &&
        sameRung(o.rung, rung) &&
        !this.#comparison.has(o) &&
        (o.expandable_segments ?? false) === turnsOn &&
        (o.fresh || !fresh),
    );
    const { length } = this.observations;
    return length >= MOST_PROBES || this.#searches.launches >= MOST_LAUNCHES || same.length >= MOST_REPEATS;
  }

  #found(search: RungSearch, size: number, max: number, notes: string[]): Action {
    const all = max >= LARGEST ? [...notes, endless(search.history, max)] : [...notes];
    const { tooFew } = this.#searches;
    if (tooFew !== null) all.push(tooFewNote(tooFew));
    const answer = answerOf(this.#constraints, this.#plan, search, { size, max, notes: all });
    const comparison = this.#comparison.outcome();
    if (comparison === null) return { type: 'found', answer };
    const told = [...answer.notes, ...(comparison.together ? [] : [ACROSS_LAUNCHES])];
    return { type: 'found', answer: { ...answer, comparison, notes: told } };
  }

  /** Ends the search early with the best answer that a fresh process has shown. */
  #stop(why: string): Action {
    const c = this.#constraints;
    const sizes = this.#searches.sizes() as Sizes;
    const verified = c.rungs.flatMap((_, index) => {
      const search = this.#searches.at(index, sizes);
      const best = bestVerified(this.#plan, search) ?? (this.#searches.keeps ? bestToKeep(search) : null);
      return best ? [{ index, search, ...best, rate: rateOf(search.history, best.size) ?? 0 }] : [];
    });
    const best = c.objective === 'throughput' ? verified.sort((a, b) => b.rate - a.rate)[0] : verified[0];
    if (!best)
      return exhausted(`${why}, and no size has fitted a fresh process`, this.observations.at(-1)?.evidence ?? null);
    const notes = [`The search ended early: ${why}.`];
    const { top } = best.search.history;
    if (top !== null && top > best.max) notes.push(`Micro-batch ${top} fitted too, but no fresh process has shown it.`);
    return this.#found(best.search, best.size, best.max, notes);
  }

  #isSmallest(o: Observation, sizes: Sizes): boolean {
    return o.micro_batch <= sizes.lo && !this.observations.some((other) => other.outcome === 'fit');
  }
}

const exhausted = (why: string, evidence: string | null = null): Action => ({ type: 'exhausted', why, evidence });

/** Every sample takes memory: a script that takes no more for a million samples than for the first few was not given them. */
function endless(history: RungHistory, max: number): string {
  const least = history.sizes[0] as number;
  const [few, many] = [peakOf(history, least), peakOf(history, max)];
  if (few === null || many === null || many > SAME * few) return `Sizes above ${LARGEST} were not tried.`;
  return `Micro-batch ${max} takes no more memory than ${least}: nothing shows that the size reaches the script. Is its flag the right one?`;
}
