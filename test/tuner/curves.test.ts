import { describe, expect, it } from 'vitest';
import { constraints, found, mostSizes, search } from './machine.js';
import { type RecordedJob, recordedJobs } from './recorded.js';

/** At least 98 per cent of the truth, or within 1 below 50. */
function nearEnough(size: number, truth: number): boolean {
  return size <= truth && (truth < 50 ? truth - size <= 1 : size >= 0.98 * truth);
}

describe.each(recordedJobs())('on the recorded curve of $name', (job: RecordedJob) => {
  const c = constraints({ budgetBytes: job.budgetBytes });

  it('finds the largest size of a fresh process in two launches, of which one at most runs out of memory, and eight sizes', () => {
    const s = search(job, c);
    const { max_micro_batch: maxMicroBatch } = found(s);
    expect(nearEnough(maxMicroBatch, job.trueMax), `${maxMicroBatch} of ${job.trueMax}`).toBe(true);
    expect(s.launches).toBeLessThanOrEqual(2);
    expect(s.oomLaunches).toBeLessThanOrEqual(1);
    expect(mostSizes(s)).toBeLessThanOrEqual(8);
  });

  it('verifies both sizes of the answer in fresh processes', () => {
    const s = search(job, c);
    const { config, max_micro_batch: maxMicroBatch } = found(s);
    const last = s.observations.filter((o) => o.launch === s.launches && o.outcome === 'fit');
    expect(last[0]?.micro_batch).toBe(maxMicroBatch);
    const first = s.observations.filter((o) => o.fresh && o.outcome === 'fit');
    expect([...first, ...last].map((o) => o.micro_batch)).toContain(config.micro_batch);
  });

  it('leaves the headroom free at the recommended size', () => {
    expect(found(search(job, c)).headroom_pct).toBeGreaterThanOrEqual(3);
  });

  it('needs few launches where each probe is one', () => {
    const s = search(job, c, true);
    const { max_micro_batch: maxMicroBatch } = found(s);
    expect(nearEnough(maxMicroBatch, job.trueMax), `${maxMicroBatch} of ${job.trueMax}`).toBe(true);
    expect(s.launches).toBeLessThanOrEqual(9);
  });
});
