import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { runJob } from '../../src/worker/run/run-job.js';
import { FIXTURES, pythonWithTorch, workbench } from './harness.js';

const python = pythonWithTorch();
const script = join(FIXTURES, 'falls_apart.py');
let cwd = '';

afterEach(() => rmSync(cwd, { recursive: true, force: true }));

/** The job in a folder of its own, to its end. */
async function run(...flags: string[]) {
  cwd = mkdtempSync(join(tmpdir(), 'oomtune-checkpoint-'));
  const resumeArg = flags.includes('--lasts') ? null : '--resume';
  const bench = workbench('run', [python, script, ...flags], { cwd, timeoutSeconds: 300, resumeArg });
  const report = await runJob(bench.request, bench.deps);
  const notes = bench.events.flatMap((event) => (event.type === 'note' ? [event.text] : []));
  const { launches } = bench.persisted.findLast((patch) => 'launches' in patch) as {
    launches: { purpose: string; config: { micro_batch: number; accumulation: number } | null; why?: string }[];
  };
  return { report, notes, runs: launches.filter(({ purpose }) => purpose === 'run') };
}

const steps = (): number[] => readFileSync(join(cwd, 'steps.log'), 'utf8').trim().split('\n').map(Number);
const weights = (file: string): number[] => JSON.parse(readFileSync(join(cwd, file), 'utf8'));

describe('a job whose memory falls to pieces', () => {
  it('is ended at its own next checkpoint and goes on in less memory from there: no step is made twice, and its weights are the same', async () => {
    const { report, notes, runs } = await run();
    expect(report).toMatchObject({
      outcome: 'succeeded',
      launches: 2,
      config: { micro_batch: 4, accumulation: 2 },
      cut: { cut: 'model' },
    });
    const made = steps();
    expect(made).toEqual(made.map((_, at) => at));
    expect((made.length - 20) % 4).toBe(0);
    const why = `Memory lay in pieces, and it was ended at its checkpoint of step ${made.length - 20}: going on with 4 x 2`;
    expect(notes).toContain(`${why}, resuming.`);
    expect(notes.join('\n')).toContain('It is ended at its own next checkpoint and goes on from there with 4 x 2.');
    expect(runs).toMatchObject([{ config: { micro_batch: 8 } }, { config: { micro_batch: 4 }, why }]);
    execFileSync(python, [script, '--straight', String(made.length)], { cwd });
    const other = weights('straight.json');
    for (const [at, value] of weights('trained.json').entries())
      expect(Math.abs(value - (other[at] as number))).toBeLessThan(1e-9);
  });

  it('is only told so where it reads checkpoints and nobody has said that it goes on from them', async () => {
    const { report, notes, runs } = await run('--lasts');
    expect(report).toMatchObject({ outcome: 'succeeded', launches: 1 });
    expect(notes.join('\n')).toContain('Memory lies in pieces');
    expect(runs).toHaveLength(1);
    expect(steps()).toHaveLength(401);
  });

  it('goes on as before where its batch turns out not to be one that can be cut', async () => {
    const { report, notes, runs } = await run('--mixes');
    expect(notes.join('\n')).toContain('going on as before');
    expect(report).toMatchObject({ outcome: 'succeeded', launches: 3, config: { micro_batch: 8 } });
    expect(runs.map(({ config }) => config?.micro_batch)).toEqual([8, 4, 8]);
    const made = steps();
    expect(made).toEqual(made.map((_, at) => at));
  });
});
