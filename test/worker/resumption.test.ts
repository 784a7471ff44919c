import { afterEach, describe, expect, it } from 'vitest';
import { secondsAtStake } from '../../src/worker/run/resumption.js';
import { runJob } from '../../src/worker/run/run-job.js';
import { pythonWithTorch, workbench } from './harness.js';

const python = pythonWithTorch();
const notesOf = (bench: ReturnType<typeof workbench>): string =>
  bench.events.flatMap((event) => (event.type === 'note' ? [event.text] : [])).join('\n');

afterEach(() => {
  delete process.env.OOMTUNE_RESTART_SECONDS;
});

describe('a job that runs out of memory late', () => {
  it('is said to resume where its script asks whether it is to', async () => {
    const bench = workbench('run', [python, 'late.py'], { budget: '100MiB', cut: 'loader' });
    expect(await runJob(bench.request, bench.deps)).toMatchObject({ outcome: 'succeeded' });
    expect(notesOf(bench)).toContain(', resuming. ');
  });

  it('is said to start again from the beginning where nothing shows that it resumes', async () => {
    const bench = workbench('run', [python, 'late_alone.py'], { cut: 'loader', budget: '100MiB' });
    expect(await runJob(bench.request, bench.deps)).toMatchObject({ outcome: 'succeeded' });
    expect(notesOf(bench)).toContain(', again from the beginning. ');
    expect(notesOf(bench)).not.toContain('resuming');
  });

  it('is not started again by itself where more is at stake than the limit says, unless it is told to', async () => {
    process.env.OOMTUNE_RESTART_SECONDS = '0.1';
    const bench = workbench('run', [python, 'late_alone.py'], { cut: 'loader', budget: '100MiB' });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'failed', failure: { class: 'device_oom' } });
    expect(report.failure?.advice).toMatch(
      /^It ran for \d+ s, .*`--restart` runs it again from the beginning, at 32 x 2/,
    );
    const again = workbench('run', [python, 'late_alone.py'], { cut: 'loader', budget: '100MiB', restart: true });
    expect(await runJob(again.request, again.deps)).toMatchObject({ outcome: 'succeeded' });
  });

  it('has ten minutes at stake unless the environment says otherwise', () => {
    expect(secondsAtStake({})).toBe(600);
    expect(secondsAtStake({ OOMTUNE_RESTART_SECONDS: '60' })).toBe(60);
    expect(secondsAtStake({ OOMTUNE_RESTART_SECONDS: 'soon' })).toBe(600);
  });
});
