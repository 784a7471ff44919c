import { relative } from 'node:path';
import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** Seconds that a file takes on two cores, by the beginning of its path: the first that fits counts. Others take FEW. */
const SECONDS: [path: string, seconds: number][] = [
  ['test/frameworks/flags', 20],
  ['test/frameworks/loops', 340],
  ['test/frameworks/launchers', 250],
  ['test/frameworks/', 150],
  ['test/cli/slurm', 110],
  ['test/python/integrations', 80],
  ['test/package/install', 60],
  ['test/worker/by-hand', 130],
  ['test/python/hook-', 110],
  ['test/cuda/sanitizers', 150],
  ['test/native/core', 150],
  ['test/daemon/lost-host', 130],
  ['test/daemon/data-loss', 130],
  ['test/daemon/ends', 110],
  ['test/daemon/outage', 110],
  ['test/daemon/hosts', 100],
  ['test/daemon/', 40],
  ['test/guides/', 80],
  ['test/worker/', 30],
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
