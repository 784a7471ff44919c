import { describe, expect, it } from 'vitest';
import { hookMessage, type Measured } from '../../src/contract/hook.js';
import type { Probe } from '../../src/contract/measurement.js';
import { doubtOf } from '../../src/tuner/peaks.js';
import { stepsToGo, worstRank } from '../../src/worker/search/worst-rank.js';

function measured(patch: Record<string, unknown>): Measured {
  const message = hookMessage.parse({
    t: 'measured',
    micro_batch: 8,
    accumulation: 1,
    steps: 3,
    total_bytes: 100,
    forward_backward_bytes: 80,
    optimizer_bytes: 50,
    reserved_bytes: null,
    resident_bytes: 40,
    step_s: [0.1, 0.1, 0.1],
    ...patch,
  });
  if (message.t !== 'measured') throw new Error(message.t);
  return message;
}

describe('the worst rank of a probe', () => {
  it('takes each figure from where it is highest, and the seconds from the slowest', () => {
    const ranks = [
      measured({ total_bytes: 120, parameter_bytes: 10, gradient_bytes: 9, optimizer_state_bytes: 20 }),
      measured({ resident_bytes: 60, parameter_bytes: 12, gradient_bytes: null, steps: 2, step_s: [0.2, 0.2] }),
    ];
    expect(worstRank(ranks)).toMatchObject({
      total_bytes: 120,
      resident_bytes: 60,
      reserved_bytes: null,
      parameter_bytes: 12,
      gradient_bytes: 9,
      optimizer_state_bytes: 20,
      steps: 2,
      step_s: [0.2, 0.2],
    });
  });

  it('knows nothing of weights where an older hook says nothing', () => {
    const { parameter_bytes, gradient_bytes, optimizer_state_bytes } = worstRank([measured({})]);
    expect([parameter_bytes, gradient_bytes, optimizer_state_bytes]).toEqual([null, null, null]);
  });
});

describe('a size that gives back its cache', () => {
  const probe = { steps: 3, rest_steps: 0, ...doubtOf(1000), retry_steps: 20 } as Probe;
  const short = {
    alloc_retries: 4,
    total_bytes: 990,
    reserved_bytes: 800,
    needed_bytes: 700,
    workspaces_refused: true,
  };

  it('has to last twenty steps', () => {
    expect(stepsToGo(probe, measured({ ...short, pieces_bytes: 80 }))).toBe(7);
    expect(stepsToGo(probe, measured({ ...short, pieces_bytes: 80, steps: 10 }))).toBe(10);
    expect(stepsToGo(probe, measured({ ...short, pieces_bytes: null, steps: 10 }))).toBe(10);
    expect(stepsToGo(probe, measured({ ...short, pieces_bytes: 80, steps: 20 }))).toBe(0);
  });

  it('has to last ten where what it needs leaves half as much again as lies in pieces', () => {
    expect(stepsToGo(probe, measured({ ...short, pieces_bytes: 70 }))).toBe(7);
    expect(stepsToGo(probe, measured({ ...short, pieces_bytes: 70, steps: 10 }))).toBe(0);
    expect(stepsToGo(probe, measured({ ...short, pieces_bytes: 74, steps: 10 }))).toBe(10);
  });
});

describe('further steps of a probe', () => {
  const probe = (proves: boolean): Probe => ({
    rung: { amp: 'off', checkpointing: false },
    micro_batch: 8,
    accumulation: 1,
    steps: 3,
    rest_steps: 0,
    ...doubtOf(1000, { proves }),
    fresh: true,
    purpose: 'bound',
    why: 'a test',
  });
  const refused = measured({ alloc_retries: 4, workspaces_refused: true });

  it('are made where its allocator gives back its cache and it may be the answer: three steps of some last no ten', () => {
    expect(stepsToGo(probe(true), refused)).toBe(7);
    expect(stepsToGo(probe(true), measured({ alloc_retries: 4, steps: 10 }))).toBe(0);
  });

  it('are made where it has no room for another page: it ran for three steps without, and for no hundred (ebgan under 3 GiB)', () => {
    const full = { total_bytes: 997, reserved_bytes: 900 };
    const budget = { budget_bytes: 1000 };
    expect(stepsToGo({ ...probe(true), ...budget }, measured(full))).toBe(7);
    expect(stepsToGo({ ...probe(true), ...budget }, measured({ ...full, total_bytes: 990 }))).toBe(0);
    // Where every byte is counted there is no such allocator.
    expect(stepsToGo({ ...probe(true), ...budget }, measured({ total_bytes: 999 }))).toBe(0);
    expect(stepsToGo({ ...probe(false), ...budget }, measured(full))).toBe(0);
  });

  it('are none where it only tells the way, or its allocator rests', () => {
    expect(stepsToGo(probe(false), refused)).toBe(0);
    expect(stepsToGo(probe(true), measured({ alloc_retries: 0 }))).toBe(0);
  });
});
