import { statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Measurement } from '../../src/daemon/sharing/measurement.js';
import { Pace } from '../../src/daemon/sharing/pace.js';
import { FEWEST_ROUNDS, gainOf, judge, MARGIN, MOST_ROUNDS, type Round } from '../../src/daemon/sharing/verdict.js';
import { digest, exactDigest, recognise } from '../../src/worker/command/index.js';
import { ROOT, until } from '../store/home.js';
import { recommendation } from '../store/samples.js';
import { Host, sleep } from './host.js';

const positive = fc.double({ min: 0.01, max: 1000, noNaN: true });
/** Two jobs that get `gain` times as much done side by side, in so many rounds with such noise on each rate. */
const measured = (gain: number, noise: number[]): Round[] =>
  noise.map((part, at) => {
    const other = noise[(at + 1) % noise.length] as number;
    return {
      alone: [10 * (1 + part), 3 * (1 - part)],
      beside: [10 * (gain / 2) * (1 + other), 3 * (gain / 2) * (1 - other)],
    };
  });
const noiseOf = (most: number) =>
  fc.array(fc.double({ min: -most, max: most, noNaN: true }), { minLength: MOST_ROUNDS, maxLength: MOST_ROUNDS });
const verdictOf = (rounds: Round[]) => {
  for (let count = 0; count <= rounds.length; count += 1) {
    const verdict = judge(rounds.slice(0, count));
    if (verdict !== null) return { verdict, count };
  }
  throw new Error('there was no verdict');
};

describe('the verdict on two jobs', () => {
  test('comes after the most rounds at the latest, whatever was measured, and never before the fewest', () => {
    const round = fc.record({ alone: fc.tuple(positive, positive), beside: fc.tuple(positive, positive) });
    fc.assert(
      fc.property(fc.array(round, { minLength: MOST_ROUNDS, maxLength: MOST_ROUNDS }), (rounds) => {
        const { count } = verdictOf(rounds);
        expect(count).toBeGreaterThanOrEqual(FEWEST_ROUNDS);
        expect(count).toBeLessThanOrEqual(MOST_ROUNDS);
      }),
    );
  });

  test('is right for all gains away from the margin, with a tenth of noise on every rate', () => {
    fc.assert(
      fc.property(fc.double({ min: 0.3, max: 2, noNaN: true }), noiseOf(0.1), (gain, noise) => {
        const far = Math.abs(gain / (1 + MARGIN) - 1) > 0.25;
        if (!far) return;
        expect(verdictOf(measured(gain, noise))).toEqual({
          verdict: gain > 1 ? 'together' : 'apart',
          count: FEWEST_ROUNDS,
        });
      }),
    );
  });

  test('bears rounds that went wrong: the median decides once they are fewer than half', () => {
    fc.assert(
      fc.property(fc.constantFrom(0.8, 1.6), noiseOf(0.05), fc.integer({ min: 1, max: 3 }), (gain, noise, wrong) => {
        const rounds = measured(gain, noise).map((round, at) =>
          at < wrong ? (measured(2.4 - gain, [0])[0] as Round) : round,
        );
        const { verdict, count } = verdictOf(rounds);
        if (wrong < FEWEST_ROUNDS)
          expect({ verdict, count }).toEqual({ verdict: gain > 1 ? 'together' : 'apart', count: MOST_ROUNDS });
      }),
    );
  });

  test('knows no first and second, no unit of time, and is never worse for more that gets done', () => {
    const round = fc.record({ alone: fc.tuple(positive, positive), beside: fc.tuple(positive, positive) });
    const rounds = fc.array(round, { minLength: MOST_ROUNDS, maxLength: MOST_ROUNDS });
    fc.assert(
      fc.property(rounds, fc.constantFrom(0.25, 2, 1024), (all, unit) => {
        const { verdict } = verdictOf(all);
        const swapped = all.map(({ alone: [a, b], beside: [c, d] }): Round => ({ alone: [b, a], beside: [d, c] }));
        expect(verdictOf(swapped).verdict).toBe(verdict);
        const scaled = all.map(
          ({ alone: [a, b], beside: [c, d] }): Round => ({ alone: [a * unit, b], beside: [c * unit, d] }),
        );
        expect(verdictOf(scaled).verdict).toBe(verdict);
        const more = all.map(({ alone, beside: [c, d] }): Round => ({ alone, beside: [c * 4, d * 4] }));
        if (verdict === 'together') expect(verdictOf(more).verdict).toBe('together');
      }),
    );
  });

  test('jobs that take turns by themselves are apart, jobs that do not notice each other together', () => {
    expect(gainOf({ alone: [10, 4], beside: [5, 2] })).toBe(1);
    expect(judge(measured(1, [0, 0, 0]))).toBe('apart');
    expect(judge(measured(2, [0, 0, 0]))).toBe('together');
  });
});

describe('a measurement', () => {
  /** Runs it with two jobs of these paces (steps a second), told of every so often. */
  function simulate(alone: [number, number], gain: number, everyMs: number) {
    const paces: [Pace, Pace] = [new Pace(), new Pace()];
    const measurement = new Measurement(4000, 0);
    const steps: [number, number] = [0, 0];
    const stood: [number, number] = [0, 0];
    let still: 0 | 1 | null = null;
    for (let now = 0; now < 3_600_000; now += 100) {
      for (const at of [0, 1] as const) {
        if (still === at) stood[at] += 100;
        else steps[at] += 0.1 * alone[at] * (still === null ? gain / 2 : 1);
        if (now % everyMs === 0 && still !== at) paces[at].add(Math.floor(steps[at]), now);
      }
      const next = measurement.look(now, paces);
      if (next.verdict !== null) return { ...next, now, stood, rounds: measurement.rounds };
      still = next.still;
    }
    throw new Error('there was no verdict');
  }

  test('finds what two jobs get done together and alone, whatever their steps take, and lets both run in the end', () => {
    const pace = fc.double({ min: 1, max: 200, noNaN: true });
    fc.assert(
      fc.property(fc.tuple(pace, pace), fc.constantFrom(0.7, 1.5, 2), (alone, gain) => {
        const { verdict, still, stood } = simulate(alone, gain, 1000);
        expect(verdict).toBe(gain > 1 ? 'together' : 'apart');
        expect(still).toBeNull();
        expect(Math.max(...stood)).toBeLessThan(60_000);
      }),
      { numRuns: 40 },
    );
  });

  test('gives up where a job makes no steps that could be counted', () => {
    expect(simulate([10, 0], 2, 1000).verdict).toBe('unmeasured');
  });
});

describe('the pace of a job', () => {
  test('counts from a moment on, is not confused by several ranks, and begins again with another launch', () => {
    const pace = new Pace();
    expect(pace.known).toBe(false);
    for (const at of [1000, 2000, 3000, 4000]) {
      pace.add(at / 100, at);
      pace.add(at / 100 - 1, at); // another rank
    }
    expect(pace.known).toBe(true);
    expect(pace.since(0)).toBeCloseTo(10);
    expect(pace.since(3500)).toBeNull();
    pace.add(1, 10_000);
    expect(pace.known).toBe(false);
  });
});

describe('jobs of --share auto', () => {
  const GIB = 2 ** 30;
  const MODEL = 'NVIDIA H200';
  let host: Host;
  beforeEach(() => {
    host = new Host();
  });
  afterEach(() => host.close());

  /** What an earlier run has recorded; there is no GPU to measure a peak on. */
  async function submit(name: string, steps: number, busy: number): Promise<string> {
    const command = [
      '/usr/bin/python3',
      join(ROOT, 'test/fixtures/daemon/steps.py'),
      name,
      String(steps),
      String(busy),
    ];
    const plan = await recognise(command, { cwd: host.work, env: process.env, preset: 'auto', worldSize: null });
    const known = digest(plan);
    const recorded = recommendation({
      key: `${name}:nvidia-h200:80g:1x`,
      name,
      gpu_model: MODEL,
      budget_bytes: 80 * GIB,
      world_size: 1,
      micro_batch: 8,
      accumulation: 1,
      effective_batch: 8,
      max_micro_batch: 8,
      amp: 'off',
      checkpointing: false,
      peak_bytes: 10 * GIB,
      command_digest: known,
      commands: [{ digest: exactDigest(plan, known), own_batch: 8, own_accumulation: 1 }],
    });
    await (await host.store()).recommendations.put(recorded, null);
    const wishes = { name, device: null, budget: null, tune: true, share: true, shareAuto: true, preset: 'auto' };
    return host.submit(command, wishes);
  }

  const sharing = async (id: string) => (await host.job(id)).sharing ?? null;
  async function verdict(id: string, wanted: string): Promise<void> {
    await until(async () => ((await sharing(id))?.verdict ?? 'measuring') !== 'measuring', 100).catch(() => {});
    if ((await sharing(id))?.verdict !== wanted)
      throw new Error(`${JSON.stringify(await sharing(id))}, not ${wanted}: ${host.said.slice(-4000)}`);
  }

  test('two that leave the device idle go side by side, and it is known of the next two of their names', async () => {
    await host.start({ gpus: [MODEL], pairWindowMs: 1500 });
    const first = await submit('calm', 100_000, 0.005);
    await host.state(first, 'running', 40);
    const second = await submit('quiet', 100_000, 0.005);
    await verdict(second, 'together');
    expect(await sharing(first)).toMatchObject({ job: second, name: 'quiet', verdict: 'together' });
    expect((await sharing(first))?.gain).toBeGreaterThan(1.3);
    const store = await host.store();
    expect(await store.pairs.get(MODEL, ['quiet', 'calm'])).toMatchObject({ verdict: 'together' });
    for (const name of ['calm', 'quiet']) writeFileSync(join(host.work, `done-${name}`), '');
    for (const id of [first, second]) await host.state(id, 'succeeded', 60);
    // Known: nobody stands still for a measurement
    const again = [await submit('calm', 30, 0.005), await submit('quiet', 30, 0.005)];
    for (const id of again) await host.state(id, 'succeeded', 60);
    expect(await host.leftOver()).toEqual([]);
  }, 400_000);

  test('two that ran when their daemon was killed are measured by the next one, which their hooks tell of their steps', async () => {
    const settings = { gpus: [MODEL], pairWindowMs: 1500 };
    await host.start(settings);
    const ids = [await submit('calm', 100_000, 0.005), await submit('quiet', 100_000, 0.005)];
    for (const id of ids) await host.state(id, 'running', 60);
    await until(async () => (await sharing(ids[1] as string))?.verdict === 'measuring', 60);
    await host.kill();
    const store = await host.store();
    expect(await store.pairs.get(MODEL, ['quiet', 'calm'])).toBeNull();
    await host.start(settings);
    // Recorded only where rounds were measured.
    await until(async () => (await store.pairs.get(MODEL, ['quiet', 'calm'])) !== null, 120);
    for (const name of ['calm', 'quiet']) writeFileSync(join(host.work, `done-${name}`), '');
    for (const id of ids) await host.state(id, 'succeeded', 60);
    for (const id of ids) expect((await host.job(id)).launches).toHaveLength(1);
    expect(await host.leftOver()).toEqual([]);
  }, 400_000);

  test('of two that both keep it busy the later one stands still, loses nothing, and the next pair never starts together', async () => {
    const settings = { gpus: [MODEL], pairWindowMs: 1500 };
    await host.start(settings);
    const first = await submit('busy', 100_000, 0.055);
    await host.state(first, 'running', 40);
    const second = await submit('hard', 800, 0.055);
    await verdict(second, 'apart');
    await until(async () => (await host.job(second)).reason?.startsWith('waits for its turn') === true);
    expect((await host.job(second)).state).toBe('running');
    expect(await sharing(first)).toMatchObject({ job: second, verdict: 'apart' });
    // It stands still under the next daemon, too, also after one that was killed; while there is none it runs
    const computes = () => Date.now() - statSync(join(host.work, 'needs-hard')).mtimeMs < 1000;
    await until(() => !computes());
    await host.kill();
    await host.start(settings);
    await sleep(2000);
    expect(computes()).toBe(false);
    await host.stop();
    await until(computes);
    await host.start(settings);
    await until(() => !computes());
    writeFileSync(join(host.work, 'done-busy'), '');
    await host.state(first, 'succeeded', 40);
    await host.state(second, 'succeeded', 90);
    expect(host.lines('made').find((line) => line.startsWith('hard'))).toBe('hard 800');
    expect((await host.job(second)).launches).toHaveLength(1);
    const [third, fourth] = [await submit('hard', 60, 0.01), await submit('busy', 60, 0.01)];
    const times: [number, number][] = [];
    for (const id of [third, fourth]) {
      const { started_at: from, ended_at: to } = await host.ended(id, 60);
      times.push([Date.parse(from as string), Date.parse(to as string)]);
    }
    const [earlier, later] = times.sort(([one], [other]) => one - other) as [[number, number], [number, number]];
    // (the device is free a moment before an end is recorded)
    expect(later[0]).toBeGreaterThan((earlier[0] + earlier[1]) / 2);
    expect(await host.leftOver()).toEqual([]);
  }, 400_000);
});
