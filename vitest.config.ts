import { relative } from 'node:path';
import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** Seconds that a file takes beside others on two cores, by the beginning of its path: the first that fits counts. Others take FEW. */
const SECONDS: [path: string, seconds: number][] = [
  ['test/frameworks/loops', 1100],
  ['test/frameworks/transformers', 950],
  ['test/frameworks/trl', 800],
  ['test/frameworks/launchers', 700],
  ['test/frameworks/lightning', 550],
  ['test/frameworks/vision', 500],
  ['test/frameworks/entry-points', 500],
  ['test/frameworks/trouble-', 330],
  ['test/frameworks/flags', 40],
  ['test/frameworks/', 160],
  ['test/python/hook-', 600],
  ['test/python/versions', 100],
  ['test/python/tokens', 100],
  ['test/python/find-batch', 90],
  ['test/python/integrations', 80],
  ['test/worker/by-hand', 450],
  ['test/worker/rehearsal', 330],
  ['test/worker/ladder', 330],
  ['test/worker/spare', 230],
  ['test/worker/run-job', 180],
  ['test/worker/lives', 180],
  ['test/worker/scripts', 130],
  ['test/worker/uncut', 120],
  ['test/worker/', 70],
  ['test/native/core', 400],
  ['test/cuda/sanitizers', 350],
  ['test/cuda/sharing', 80],
  ['test/guides/followed', 280],
  ['test/guides/standins', 230],
  ['test/guides/', 100],
  ['test/package/', 100],
  ['test/cli/slurm', 400],
  ['test/cli/redis-outage', 70],
  ['test/cli/redis-refuses', 70],
  ['test/cli/', 40],
  ['test/daemon/search', 200],
  ['test/daemon/sharing', 160],
  ['test/daemon/data-loss', 150],
  ['test/daemon/lost-host', 145],
  ['test/daemon/silent-files', 140],
  ['test/daemon/hosts', 130],
  ['test/daemon/adoption', 120],
  ['test/daemon/ends', 120],
  ['test/daemon/outage', 105],
  ['test/daemon/refusals', 100],
  ['test/daemon/system/jobs', 100],
  ['test/daemon/system/attacks', 100],
  ['test/daemon/system/six-users', 80],
  ['test/daemon/system/', 40],
  ['test/daemon/l', 95],
  ['test/daemon/s', 90],
  ['test/daemon/notify', 85],
  ['test/daemon/wait', 85],
  ['test/daemon/gpus', 75],
  ['test/daemon/memory', 60],
  ['test/daemon/', 30],
  ['test/store/fair-share', 160],
  ['test/tuner/', 20],
];
const FEW = 5;

/** What these do is wait, for times to pass and daemons to look again: beside them others have the cores. */
const WAITING = ['test/daemon/', 'test/store/'];

/**
 * Two files that compute and two that wait side by side, for as long as there are both, and the longest of each first: else the
 * cores would be fought for at the beginning and idle at the end, or one worker still be at it when the others have nothing left.
 */
class Mixed extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const path = ({ moduleId }: TestSpecification): string => relative(import.meta.dirname, moduleId);
    const seconds = (file: TestSpecification): number =>
      SECONDS.find(([part]) => path(file).startsWith(part))?.[1] ?? FEW;
    const waits = (file: TestSpecification): boolean => WAITING.some((part) => path(file).startsWith(part));
    const starts = new Map<TestSpecification, number>();
    for (const kind of [true, false]) {
      const lanes = [0, 0];
      const longest = files.filter((file) => waits(file) === kind).sort((one, other) => seconds(other) - seconds(one));
      for (const file of longest) {
        const free = lanes.indexOf(Math.min(...lanes));
        starts.set(file, lanes[free] as number);
        lanes[free] = (lanes[free] as number) + seconds(file);
      }
    }
    const start = (file: TestSpecification): number => starts.get(file) ?? 0;
    return files.toSorted((one, other) => start(one) - start(other) || path(one).localeCompare(path(other)));
  }
}

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    setupFiles: ['test/common/draws.ts'],
    // On as few as two cores: two files that compute, and two that wait.
    maxWorkers: 4,
    sequence: { sequencer: Mixed },
    // For what hangs: no test is judged by its time, and a machine may have others' work to do.
    testTimeout: 300_000,
    hookTimeout: 300_000,
  },
});
