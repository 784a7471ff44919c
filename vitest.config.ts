import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** What takes longest begins first, or one worker would still be at it when the others have nothing left. */
const LONGEST = [
  'test/frameworks/transformers',
  'test/frameworks/loops',
  'test/worker/by-hand',
  'test/frameworks/',
  'test/python/hook-lives',
  'test/python/hook-probe',
  'test/python/hook',
  'test/cuda/sanitizers',
  'test/native/core',
  'test/daemon/',
  'test/guides/',
  'test/worker/',
  'test/cli/',
];

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const place = ({ moduleId }: TestSpecification): number => {
      const at = LONGEST.findIndex((part) => moduleId.includes(part));
      return at < 0 ? LONGEST.length : at;
    };
    return files.toSorted((one, other) => place(one) - place(other) || one.moduleId.localeCompare(other.moduleId));
  }
}

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    setupFiles: ['test/common/draws.ts'],
    // Real Redis, torch and processes on as few as two cores: half of the time a file waits for one of them.
    maxWorkers: 3,
    sequence: { sequencer: LongestFirst },
    testTimeout: 120_000,
    hookTimeout: 120_000,
  },
});
