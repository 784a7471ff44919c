import { describe, expect, it } from 'vitest';
import { constraints, found, mostSizes, search } from './machine.js';
import { searchedJobs } from './searched.js';

describe.each(searchedJobs())('on what an H200 showed of $name', (job) => {
  it('asks a process for eight sizes at most, and answers nothing that a fresh process does not take', () => {
    const s = search(job, constraints({ budgetBytes: job.budgetBytes }));
    const { max_micro_batch: max } = found(s);
    expect(max).toBeLessThanOrEqual(job.truth);
    // A process that has run others failed one or two sizes below the largest that a fresh one takes.
    expect(max).toBeGreaterThanOrEqual(job.truth < 50 ? job.truth - 1 : 0.97 * job.truth);
    expect(mostSizes(s)).toBeLessThanOrEqual(8);
    expect(s.launches).toBeLessThanOrEqual(3);
    expect(s.probes.length).toBeLessThan(job.before.probes);
  });

  it('takes two launches and five to seven sizes where segments can grow, and reaches what a fresh process takes without', () => {
    const s = search(job, constraints({ budgetBytes: job.budgetBytes, expandable: 'possible' }));
    const { max_micro_batch: max } = found(s);
    expect(max).toBeGreaterThanOrEqual(job.truth < 50 ? job.truth - 1 : 0.98 * job.truth);
    expect(s.launches).toBe(2);
    expect(s.oomLaunches).toBeLessThanOrEqual(1);
    expect(mostSizes(s)).toBeLessThanOrEqual(7);
    expect(s.probes.length).toBeLessThanOrEqual(10);
  });
});
