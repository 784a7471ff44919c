import { describe, expect, it } from 'vitest';
import type { Loop } from '../../src/contract/hook.js';
import type { Observation } from '../../src/contract/measurement.js';
import { exhaustedDiagnosis, withCutCalls } from '../../src/worker/search/exhausted.js';
import { uncutFor, undriveable } from '../../src/worker/search/undriveable.js';

const MIB = 1024 ** 2;
const all = { minBatch: 1, amp: 'auto', checkpointing: 'auto', accumulation: 'auto', exact: false } as const;
const oom = { ...undriveable('CUDA out of memory'), class: 'device_oom', advice: 'Use a smaller batch.' } as const;

const seen = { cut: null, cutCalls: null, observations: [], loop: null };

const because = (why: string) => ({ type: 'exhausted', why, evidence: null }) as const;

describe('a search without an answer', () => {
  it('advises no smaller batch where the smallest did not fit', () => {
    expect(exhaustedDiagnosis(oom, because('why'), all, seen)).toMatchObject({
      class: 'device_oom',
      advice: 'Give a larger --budget, or make the model smaller.',
    });
  });

  it('tells what the smallest size takes at least, on the rung that takes least of it', () => {
    const refused = (micro_batch: number, held: number, asked: number | null) =>
      ({
        outcome: 'device_oom',
        micro_batch,
        peaks: { total_bytes: held * MIB },
        refused_bytes: asked && asked * MIB,
      }) as Observation;
    const observations = [refused(64, 90, 8), refused(1, 355, 64), refused(1, 363, 48), refused(1, 300, null)];
    expect(exhaustedDiagnosis(oom, because('why'), all, { ...seen, observations }).advice).toBe(
      'Give a larger --budget, or make the model smaller. Micro-batch 1 had come to 411 MiB with what it was refused, so it takes more than that.',
    );
  });

  it('names what the options rule out', () => {
    expect(exhaustedDiagnosis(oom, because('why'), { ...all, minBatch: 8, exact: true }, seen).advice).toBe(
      'Give a larger --budget or a smaller --min-batch or more knobs to turn, or make the model smaller.',
    );
  });

  it('keeps the advice of a job that could not even load', () => {
    const cut = { cut: 'model', why: 'the loop sees its own batches only' } as const;
    expect(exhaustedDiagnosis(oom, because('why'), all, { ...seen, cut }).advice).toContain('--cut loader');
    expect(exhaustedDiagnosis(oom, because('why'), all, { ...seen, cut }).advice).toContain('does not compare');
    const loop = { place: 'call' } as Loop;
    expect(exhaustedDiagnosis(oom, because('why'), all, { ...seen, cut, loop }).advice).toMatch(
      /budget.*forward\(\) needs less\.$/,
    );
    expect(exhaustedDiagnosis({ ...oom, phase: 'load' }, because('why'), all, seen).advice).toBe(oom.advice);
  });

  it('names no cut of the loader’s batches where that trains something else, too', () => {
    const why = 'Triplets cannot be cut: it returns a value that is neither a mean nor a sum';
    expect(uncutFor(`${why}.`, null).advice).toContain('--cut loader');
    const nowhere = uncutFor(`${why} (nor would --cut loader train the same).`, null).advice;
    expect(nowhere).toMatch(/larger --budget.*batches of the loader would train something else, too/);
    expect(nowhere).not.toContain('--cut loader');
  });

  it('asks for options at auto only where they are not, if nothing can be cut elsewhere', () => {
    const loop = { place: 'call' } as Loop;
    const adviceAt = (amp: 'auto' | 'off', checkpointing: 'auto' | 'off') =>
      uncutFor('Why.', loop, { amp, checkpointing }).advice;
    expect(adviceAt('auto', 'auto')).not.toContain('at auto');
    expect(adviceAt('off', 'auto')).toContain('or leave --amp at auto');
    expect(adviceAt('off', 'off')).toContain('or leave --amp and --checkpointing at auto');
  });

  it('says which calls were cut, and that no size is smaller where none was', () => {
    const cut = { cut: 'model', why: 'the loop sees its own batches only' } as const;
    const observations = [
      {
        outcome: 'device_oom',
        micro_batch: 1,
        peaks: { total_bytes: 46 * MIB },
        refused_bytes: 8 * MIB,
      } as Observation,
    ];
    const adviceAt = (cutCalls: string[], loop: Loop | null = null) =>
      exhaustedDiagnosis(oom, because('why'), all, { cut, cutCalls, observations, loop }).advice;
    expect(adviceAt(['Embedding'])).toMatch(
      /Micro-batch 1 had come.* What is cut are calls of Embedding: what is computed of their outputs has the whole batch\. --cut loader/,
    );
    expect(adviceAt([])).toMatch(
      /The whole batch had come to 54 MiB.* No call of a model was cut before that.* own flag.* --cut loader cuts the batches/,
    );
    expect(adviceAt([])).not.toContain('Micro-batch 1');
    expect(adviceAt([], { place: 'call' } as Loop)).not.toContain('--cut loader');
  });

  it('says the same of a launch that ran out of memory later', () => {
    const late = { ...oom, reason: 'batch' } as const;
    expect(withCutCalls(late, null).advice).toBe('Use a smaller batch.');
    expect(withCutCalls({ ...late, reason: 'leak' }, []).advice).toBe('Use a smaller batch.');
    expect(withCutCalls(late, ['Embedding', 'Linear']).advice).toMatch(
      /^Use a smaller batch\. What is cut are calls of Embedding, Linear: what is computed of their outputs/,
    );
    expect(withCutCalls(late, []).advice).toMatch(
      /^Give a larger --budget.* No call of a model was cut before that, so it is no smaller at any size/,
    );
  });

  it('blames the options where nothing could be tried', () => {
    expect(exhaustedDiagnosis(null, because('no size'), all, seen)).toMatchObject({
      class: 'user_error',
      evidence: 'no size',
    });
  });

  it('tells of growth as growth, with what keeps the memory', () => {
    const grown = {
      ...because('Memory grows'),
      cause: 'growth',
      evidence: '`losses` (train.py:9: losses.append(loss))',
    } as const;
    expect(exhaustedDiagnosis(null, grown, all, seen)).toMatchObject({
      class: 'device_oom',
      reason: 'leak',
      cure: 'none',
      evidence: 'Memory grows.',
    });
  });
});
