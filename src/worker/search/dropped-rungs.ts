import type { Diagnosis } from '../../contract/diagnosis.js';
import type { FailureClass } from '../../contract/failure.js';
import type { Observation } from '../../contract/measurement.js';
import { type Rung, rungName, sameRung } from '../../contract/rung.js';
import { isTooFew } from '../../tuner/index.js';

/** Failures that a knob can cause, unlike those of the machine or by request. */
const BY_A_KNOB: readonly FailureClass[] = ['user_error', 'device_fault', 'host_oom', 'timeout', 'killed'];

/** Rungs that oomtune turned on and the command fails with. They are left out: only the command's own rung can fail it. */
export class DroppedRungs {
  readonly #dropped: Observation[] = [];
  /** The failure because of which expandable segments are left out. */
  #segments: Observation | null = null;

  constructor(private readonly asItStands: Rung) {}

  /** Drops the observation's rung if that may have caused its failure and another rung is allowed. */
  drops(observation: Observation, allowed: readonly Rung[]): boolean {
    const { rung, outcome, expandable_segments: expandable } = observation;
    if (observation.uncut) return false;
    if (this.has(rung) || (expandable && this.#segments !== null)) return true;
    if (expandable && BY_A_KNOB.includes(outcome as FailureClass) && !isTooFew(observation)) {
      this.#segments = observation;
      return true;
    }
    if (sameRung(rung, this.asItStands) || !BY_A_KNOB.includes(outcome as FailureClass)) return false;
    if (isTooFew(observation)) return false;
    if (!allowed.some((other) => !sameRung(other, rung) && !this.has(other))) return false;
    this.#dropped.push(observation);
    return true;
  }

  /** Whether the driver or the command does not support expandable segments. */
  get segments(): boolean {
    return this.#segments !== null;
  }

  /** Whether the command fails where some of the blocks are checkpointed. */
  get someBlocks(): boolean {
    return this.#dropped.some(({ rung }) => Boolean(rung.checkpointed_blocks));
  }

  has(rung: Rung): boolean {
    return this.#dropped.some((one) => sameRung(one.rung, rung));
  }

  /**
   * Such as `bf16, checkpointing is left out: the command fails with it (user_error: "RuntimeError: …").` With `end`, the failure that ended
   * the search: not those that failed in the same way, as it was no knob.
   */
  notes(end: Observation | null = null): string[] {
    const byKnob = (one: Observation): boolean => end === null || proofOf(one) !== proofOf(end);
    const rungs = this.#dropped
      .filter(byKnob)
      .map((one) => `${rungName(one.rung)} is left out: the command fails with it ${proofOf(one)}.`);
    if (this.#segments === null || !byKnob(this.#segments)) return rungs;
    return [...rungs, `Expandable segments are left out: the command fails with them ${proofOf(this.#segments)}.`];
  }
}

/** Names a knob that the options ask for as the possible cause of a failure. */
export function withRung(verdict: Diagnosis, rung: Rung, asItStands: Rung): Diagnosis {
  if (sameRung(rung, asItStands) || !BY_A_KNOB.includes(verdict.class as FailureClass)) return verdict;
  const advice = `It failed with ${rungName(rung)}, which the options ask for and the command does not turn on by itself: leave --amp and --checkpointing at auto, or see whether it fails without, too.`;
  return { ...verdict, advice };
}

const proofOf = ({ outcome, evidence }: Observation): string =>
  evidence === null ? `(${outcome})` : `(${outcome}: "${evidence}")`;
