import { describe, expect, it } from 'vitest';
import { StepReplay, type Trace } from '../../src/worker/estimate/step-replay.js';

const MIB = 1024 ** 2;
const GIB = 1024 ** 3;
const ENDLESS = { limit: 1024 * GIB, expandable: false, workspaces: [] };

/** Weights, then two steps: activations of `bytes(size)`, a gradient, and in the first the optimizer's state. */
function trace(size: number, bytes: (size: number) => number): Trace {
  const events = [bytes(size), 40 * MIB, -2, 80 * MIB, -3, bytes(size), 40 * MIB, -5, -6];
  return { micro_batch: size, prelude: [40 * MIB], events, steps: [0, 5, 9] };
}
const traces = (sizes: number[], bytes: (size: number) => number): Trace[] => sizes.map((size) => trace(size, bytes));
const replayOf = (sizes: number[], bytes: (size: number) => number): StepReplay => {
  const made = StepReplay.of(traces(sizes, bytes));
  if (made === null) throw new Error('not aligned');
  return made;
};

describe('a replay of traced steps', () => {
  const straight = replayOf([4, 8, 16], (size) => 10 * MIB * size);

  it('gives the peak of the sizes that were traced, and of others on the line through them', () => {
    for (const size of [2, 8, 16, 100]) {
      const kept = 40 + 80 + 40; // weights, state and the gradient at the second backward pass
      expect(straight.at(size, ENDLESS).allocated).toBe((kept + 10 * size) * MIB);
    }
  });

  it('follows sizes that grow with the square', () => {
    const bent = replayOf([4, 8, 16], (size) => MIB * size * size);
    expect(bent.at(40, ENDLESS).allocated).toBe((160 + 1600) * MIB);
  });

  it('finds the largest size that fits, and none where one does not', () => {
    const place = { limit: 2 * GIB, expandable: false, workspaces: [] };
    const largest = straight.largest(place, 1_000_000);
    expect(straight.at(largest, place).fits).toBe(true);
    expect(straight.at(largest + 1, place).fits).toBe(false);
    expect(largest).toBe(100); // the state lies in the first step’s activations, so that the second needs a segment of its own
    expect(straight.largest({ ...place, limit: 100 * MIB }, 10)).toBe(0);
    expect(straight.largest({ ...place, limit: 900 * GIB }, 77)).toBe(77);
  });

  it('counts workspaces that libraries keep', () => {
    const with64 = straight.at(8, { ...ENDLESS, workspaces: [32 * MIB, 32 * MIB] });
    expect(with64.allocated - straight.at(8, ENDLESS).allocated).toBe(64 * MIB);
  });

  it('takes the last steps where the first still had a batch of the size before', () => {
    const late = traces([4, 8], (size) => 10 * MIB * size).map((one, at) => {
      const more = at === 0 ? [] : [MIB, -2]; // one more allocation in the first step of the second size
      const shift = (event: number): number => (event < -1 && at > 0 ? event - 1 : event);
      const steps = one.steps.map((step) => (step === 0 ? 0 : step + more.length));
      return { ...one, events: [...more, ...one.events.map(shift), ...one.events.slice(5).map(shift)], steps };
    });
    // three steps of which the last two are alike: the third repeats the second's allocations under numbers of its own
    const third = late.map((one) => {
      const count = [...one.prelude, ...one.events.slice(0, one.steps[2])].filter((event) => event >= 0).length;
      const again = [one.events[one.steps[1] as number] as number, 40 * MIB, -(count + 1), -(count + 2)];
      const events = [...one.events.slice(0, one.steps[2]), ...again];
      return { ...one, events, steps: [...one.steps, events.length] };
    });
    const replay = StepReplay.of(third);
    expect(replay?.at(16, ENDLESS).allocated).toBe((160 + 160) * MIB);
  });

  it('is none where the operations differ', () => {
    const [one, other] = traces([4, 8], (size) => MIB * size) as [Trace, Trace];
    const longer = { ...other, events: [...other.events, MIB, MIB], steps: [0, 5, 11] };
    expect(StepReplay.of([one, longer])).toBeNull();
  });
});
