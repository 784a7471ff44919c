const MOST_POINTS = 512;
/** Fewer steps tell nothing of a pace. */
const FEWEST_STEPS = 3;

/** How far a job has come. */
export interface JobSteps {
  /** Optimizer steps that it has made. */
  step: number;
  /** Over the last minute; null: too few were told of. */
  steps_per_s: number | null;
}

const LATELY_MS = 60_000;

/** How fast a job makes its optimizer steps, by what its hook tells of them. */
export class Pace {
  #points: { step: number; at: number }[] = [];

  /** `at` in milliseconds. */
  add(step: number, at: number): void {
    const last = this.#points.at(-1);
    if (last !== undefined && step < last.step / 2)
      this.#points = []; // another launch
    else if (last !== undefined && step <= last.step) return; // another rank
    this.#points.push({ step, at });
    if (this.#points.length > MOST_POINTS) this.#points.splice(0, MOST_POINTS / 2);
  }

  /** Whether it trains. */
  get known(): boolean {
    const [first] = this.#points;
    return first !== undefined && (this.#points.at(-1)?.step ?? 0) - first.step >= FEWEST_STEPS;
  }

  /** Null: no step was told of. */
  get progress(): JobSteps | null {
    const last = this.#points.at(-1);
    if (last === undefined) return null;
    return { step: last.step, steps_per_s: this.since(last.at - LATELY_MS) };
  }

  /** Steps a second from then on (ms); null: too few were told of. */
  since(from: number): number | null {
    const first = this.#points.find(({ at }) => at >= from);
    const last = this.#points.at(-1);
    if (first === undefined || last === undefined || last.at <= first.at) return null;
    return last.step - first.step < FEWEST_STEPS ? null : (1000 * (last.step - first.step)) / (last.at - first.at);
  }
}
