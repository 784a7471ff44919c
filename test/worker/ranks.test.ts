import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import type { Loop } from '../../src/contract/hook.js';
import { FallenRank } from '../../src/worker/launch/fallen-rank.js';
import { runJob } from '../../src/worker/run/run-job.js';
import { LoopFacts } from '../../src/worker/search/loop-facts.js';
import type { Target } from '../../src/worker/target.js';
import { FIXTURES, pythonWithTorch, workbench } from './harness.js';

let folder = '';
afterEach(() => {
  if (folder !== '') rmSync(folder, { recursive: true, force: true });
});

describe('several ranks', () => {
  it('end together where one runs out of memory, and go on from the same step at a smaller size', async () => {
    folder = mkdtempSync(join(tmpdir(), 'oomtune-ranks-'));
    const options = { cwd: join(FIXTURES, 'ranks'), budget: '110MiB', amp: 'off', checkpointing: 'off' } as const;
    const bench = workbench('run', [pythonWithTorch(), 'launch.py'], {
      ...options,
      cut: 'loader',
      resumeArg: '--again',
    });
    bench.request.environment.CHECKPOINT = join(folder, 'last.pt');
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'succeeded', exit_code: 0, config: { micro_batch: 16, accumulation: 2 } });
    const notes = bench.events.flatMap((event) => (event.type === 'note' ? [event.text] : []));
    expect(notes).toContain('A rank ran out of memory and the others go on waiting for it: they are ended.');
    expect(notes.join('\n')).toContain('going on with 16 x 2, resuming');
    const { launches } = bench.persisted.findLast((patch) => 'launches' in patch) as {
      launches: { dir: string; purpose: string }[];
    };
    const [before, after] = launches
      .filter(({ purpose }) => purpose === 'run')
      .map(({ dir }) => readFileSync(join(dir, 'log'), 'utf8'));
    expect(before).toContain('waits');
    for (const rank of [0, 1, 2, 3]) {
      expect(before).toContain(`rank ${rank} from step 0`);
      expect(after).toContain(`rank ${rank} from step 6`);
      expect(after).toContain(`rank ${rank} trained`);
    }
    await bench.noneLeft();
  });

  it('that torch.multiprocessing.spawn starts are cut where they run out of memory, which only their own processes see', async () => {
    folder = mkdtempSync(join(tmpdir(), 'oomtune-ranks-'));
    const options = { cwd: FIXTURES, budget: '90MiB', amp: 'off', checkpointing: 'off' } as const;
    const bench = workbench('run', [pythonWithTorch(), 'spawned_ranks.py'], options);
    Object.assign(bench.request.environment, { MEETING: join(folder, 'meeting'), WEIGHTS: join(folder, 'weights.pt') });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'succeeded' });
    const { micro_batch: micro, accumulation } = report.config as { micro_batch: number; accumulation: number };
    expect(accumulation).toBeGreaterThan(1);
    expect(micro * accumulation).toBe(2048);
    const notes = bench.events.flatMap((event) => (event.type === 'note' ? [event.text] : []));
    expect(notes.filter((note) => note.includes('the effective batch, are those of one of them'))).toHaveLength(1);
    expect(existsSync(join(folder, 'weights.pt'))).toBe(true);
    await bench.noneLeft();
  });
});

it('share a data set, so that none has more than its part of it in a batch', () => {
  const bench = workbench('find-batch', ['true'], {});
  const seen = (samples: number, worldSize: number): number | null => {
    const facts = new LoopFacts(bench.request, { worldSize } as Target);
    facts.saw({ samples } as Loop);
    return facts.samples;
  };
  expect([seen(64, 1), seen(64, 2), seen(65, 2)]).toEqual([64, 32, 33]);
});

describe('a rank that died of memory', () => {
  it('is told of where others are left, and not where a process or a step came after it', async () => {
    const seen: string[] = [];
    const fallen = (name: string): FallenRank => {
      const one = new FallenRank(0.01);
      void one.unnoticed.then(() => seen.push(name));
      return one;
    };
    const [lone, back, other, waited] = ['lone', 'back', 'other', 'waited'].map(fallen) as FallenRank[];
    for (const one of [lone, back, waited]) one?.ranOut(7);
    lone?.gone(7, 0);
    back?.gone(7, 3);
    back?.stop();
    other?.gone(7, 3);
    waited?.gone(7, 3);
    await waited?.unnoticed;
    expect(seen).toEqual(['waited']);
  });
});
