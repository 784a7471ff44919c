import { execFileSync } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'vitest';
import { createLog } from '../../src/common/log.js';
import { DEFAULT_OPTIONS, type JobOptions } from '../../src/contract/options.js';
import type { Recommendation } from '../../src/contract/recommendation.js';
import { createRuntime } from '../../src/runtime/index.js';
import type { Progress, WorkDeps, WorkRequest } from '../../src/worker/types.js';
import { QUICK_END } from '../common/quick-end.js';

/** Set-up has imported it. To import it once more in each file of tests took a second of CPU. */
const FINDS_TORCH = 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)';

/** An interpreter with torch, as the set-up finds it. */
export function pythonWithTorch(): string {
  for (const path of [process.env.OOMTUNE_PYTHON, '/usr/bin/python3', 'python3']) {
    if (!path) continue;
    try {
      execFileSync(path, ['-c', FINDS_TORCH], { stdio: 'ignore' });
      return path;
    } catch {
      // the next one
    }
  }
  throw new Error('No interpreter with torch: run `npm run setup`.');
}

export const FIXTURES = join(import.meta.dirname, '..', 'fixtures', 'worker');

const DEFAULTS: JobOptions = {
  ...DEFAULT_OPTIONS,
  device: 'cpu',
  budget: '200MiB',
  timeoutSeconds: 280, // less than a test may take: for what hangs alone
  cwd: FIXTURES,
  retries: 3,
};

/** The real runtime and real processes; recommendations are kept in memory, and every lease is granted. */
export function workbench(purpose: WorkRequest['purpose'], command: string[], options: Partial<JobOptions> = {}) {
  process.env.OOMTUNE_HOME ??= mkdtempSync(join(tmpdir(), 'oomtune-worker-'));
  const events: Progress[] = [];
  const recorded = new Map<string, Recommendation>();
  const persisted: object[] = [];
  const controller = new AbortController();
  let leases = 0;
  const jobId = `t-${Math.random().toString(36).slice(2, 10)}`;
  const request: WorkRequest = {
    jobId,
    command,
    options: { ...DEFAULTS, ...options },
    purpose,
    journal: [],
    launches: [],
    foreground: false,
    environment: { ...process.env, OMP_NUM_THREADS: '1', PYTHONPATH: QUICK_END },
  };
  const deps: WorkDeps = {
    runtime: createRuntime(),
    records: async () => ({
      recommendations: {
        get: async (key) => recorded.get(key) ?? null,
        put: async (recommendation) => void recorded.set(recommendation.key, recommendation),
        demote: async (key, knownBad) => {
          const old = recorded.get(key);
          if (old) recorded.set(key, { ...old, status: 'demoted', known_bad_micro_batch: knownBad });
        },
      },
      leasing: {
        acquire: async ({ devices, count }) => {
          leases += 1;
          return {
            devices: devices.slice(0, count),
            foreign: devices.slice(0, count).map(() => 0),
            beside: async () => [],
            attach: async () => {},
            resize: async () => {},
            release: async () => {
              leases -= 1;
            },
          };
        },
      },
    }),
    signal: controller.signal,
    progress: (event) => events.push(event),
    persist: async (patch) => void persisted.push(structuredClone(patch)),
    log: createLog('test', 'silent'),
  };
  const processes = (): string[] =>
    execFileSync('ps', ['-eo', 'pid,args'], { encoding: 'utf8' })
      .split('\n')
      .filter((line) => line.includes(jobId));
  /** No process of the job is left; the keeper goes a moment after its supervisor, whose end is the run's. */
  const noneLeft = () => expect.poll(processes, { timeout: 10_000 }).toEqual([]);
  return { request, deps, events, recorded, persisted, controller, leases: () => leases, processes, noneLeft };
}
