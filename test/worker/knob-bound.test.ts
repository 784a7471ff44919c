import { describe, expect, it } from 'vitest';
import { NO_PEAKS, type Observation } from '../../src/contract/measurement.js';
import { ScriptBound } from '../../src/worker/knob/script-bound.js';

const WISH = { name: 'seq_len', min: null, max: null, multipleOf: null };

function seen(value: number, outcome: Observation['outcome']): Observation {
  return {
    ...{ rung: { amp: 'off', checkpointing: false, offload: false }, micro_batch: value, accumulation: 1, launch: 1 },
    ...{ fresh: true, outcome, ambiguous: false, phase: null, peaks: NO_PEAKS, steps: 3, alloc_retries: 0 },
    ...{ step_s: null, refused_bytes: null, evidence: outcome === 'fit' ? null : 'IndexError: out of range' },
    alive: false,
  };
}

/** Lets it look for the end of a script, after the values that a search has tried; what it tried, and what it found. */
function lookFor(runs: (value: number) => Observation['outcome'], tried: number[], wish = WISH) {
  const bound = new ScriptBound(wish);
  const all: Observation[] = [];
  const tell = (value: number): void => {
    const one = seen(value, runs(value));
    all.push(one);
    bound.learn(one, told());
  };
  const told = (): Observation[] => all.filter((one) => !bound.isCrash(one));
  for (const value of tried) tell(value);
  const asked: number[] = [];
  for (let next = bound.next(told()); next !== null; next = bound.next(told())) {
    asked.push(next.size);
    tell(next.size);
    if (asked.length > 20) throw new Error(`it does not end: ${asked}`);
  }
  return { bound, asked, most: bound.most(told()) };
}

describe('where a script ends', () => {
  it('at a power of two takes three launches', () => {
    const { asked, most } = lookFor((value) => (value <= 512 ? 'fit' : 'user_error'), [64, 2048]);
    expect(asked).toEqual([512, 1024, 520]);
    expect(most).toBe(512);
  });

  it.each([77, 100, 1000, 1500, 2047])('at %i is found to within 2 %%', (end) => {
    const { asked, most, bound } = lookFor((value) => (value <= end ? 'fit' : 'user_error'), [64, 2048]);
    expect(most).toBeLessThanOrEqual(end);
    expect(most).toBeGreaterThanOrEqual(Math.floor(end / 1.03) - 1);
    expect(bound.ends(most as number)).toBe(true);
    expect(asked.length).toBeLessThanOrEqual(9);
  });

  it('at what is no multiple of 8 is no end: only multiples are tried from there on', () => {
    const { asked, most, bound } = lookFor((value) => (value % 8 === 0 ? 'fit' : 'user_error'), [64, 301]);
    expect(asked).toEqual([256]);
    expect([most, bound.multipleOf]).toEqual([null, 64]);
    expect(bound.note).toContain('multiples of 64');
  });

  it('is not asked for where memory ends before', () => {
    const runs = (value: number) => (value >= 2000 ? 'user_error' : value > 400 ? 'device_oom' : 'fit');
    const { asked } = lookFor(runs, [64, 2048]);
    expect(asked).toEqual([512]);
  });

  it('below the first value leaves those below it', () => {
    const { bound, most, asked } = lookFor(() => 'user_error', [64]);
    expect([most, asked, bound.crash?.micro_batch]).toEqual([63, [], 64]);
  });
});
