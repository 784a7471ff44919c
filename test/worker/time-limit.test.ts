import { afterEach, expect, it, vi } from 'vitest';
import { TimeLimit } from '../../src/worker/run/time-limit.js';
import { workbench } from './harness.js';

const HOURS = 3600_000;

afterEach(() => {
  vi.useRealTimers();
});

function limited(startedAt: string | null) {
  const { request, deps } = workbench('run', ['true'], { timeSeconds: 3600 });
  const limit = TimeLimit.of({ ...request, startedAt }) as TimeLimit;
  return { limit, watched: limit.watch(deps) };
}

it('a time limit holds by a clock that nobody sets', async () => {
  const { limit, watched } = limited(null);
  await watched.persist({ launches: [{ launch: 1, dir: '/none', purpose: 'run', config: null }] });
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 2 * HOURS });
  expect(watched.secondsLeft?.()).toBeCloseTo(3600, -1);
  expect(watched.signal.aborted).toBe(false);
  limit.stop();
});

it('what began in another process has the rest of its time', () => {
  const { limit, watched } = limited(new Date(Date.now() - HOURS / 2).toISOString());
  expect(watched.secondsLeft?.()).toBeCloseTo(1800, -1);
  limit.stop();
});
