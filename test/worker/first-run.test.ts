import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { JobRecord } from '../../src/contract/job.js';
import type { JobOptions } from '../../src/contract/options.js';
import { Detached } from '../../src/worker/launch/detached.js';
import { prepare } from '../../src/worker/prepare.js';
import { startsAsItStands } from '../../src/worker/run/first-run.js';
import { runJob } from '../../src/worker/run/run-job.js';
import { pythonWithTorch, workbench } from './harness.js';
import { withGpu } from './stand-in-gpu.js';

const python = pythonWithTorch();
type Bench = ReturnType<typeof workbench>;

const recordOf = ({ persisted }: Bench): JobRecord => Object.assign({}, ...persisted) as JobRecord;
const logOf = ({ dir }: { dir: string }): string => readFileSync(join(dir, 'log'), 'utf8');

describe('a job of which nothing is recorded', () => {
  it('is launched once, as it stands, and recorded while it runs', async () => {
    const bench = workbench('run', [python, 'tiny.py']);
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'succeeded', launches: 1, config: { micro_batch: 64, accumulation: 1 } });
    const [recorded] = [...bench.recorded.values()];
    expect(recorded).toMatchObject({
      status: 'verified',
      micro_batch: 64,
      max_micro_batch: 64,
      known_bad_micro_batch: null,
      own_batch: 64,
      own_accumulation: 1,
      commands: [{ own_batch: 64 }],
      probes: [{ launch: 1, micro_batch: 64, outcome: 'fit', why: 'the job itself, as it stands' }],
    });
    expect(recorded?.peak_bytes).toBeGreaterThan(0);
    expect(recorded?.peak_bytes).toBeLessThanOrEqual(report.devices[0]?.peak_bytes as number);
    expect(recorded?.samples_per_s).toBeGreaterThan(0);
    expect(recorded?.memory).toMatchObject({ micro_batch: 64 });
    expect(recorded?.memory?.parameters).toBeGreaterThan(0);
    const { launches, journal, config } = recordOf(bench);
    expect(launches).toMatchObject([{ purpose: 'run', config: { micro_batch: 64 } }]);
    expect([journal.length, config?.micro_batch]).toEqual([1, 64]);
    expect(bench.events.filter(({ type }) => type === 'launch' || type === 'probing')).toEqual([]);
    expect(bench.events.map(({ type }) => type).indexOf('lasts')).toBeGreaterThan(0);
  });

  it('is recorded with the accumulation of its loop, though it validates on the same data set', async () => {
    const bench = workbench('run', [python, 'validates.py']);
    expect(await runJob(bench.request, bench.deps)).toMatchObject({
      outcome: 'succeeded',
      config: { micro_batch: 64, accumulation: 2, effective_batch: 128 },
    });
    expect([...bench.recorded.values()]).toMatchObject([{ own_batch: 64, own_accumulation: 2, accumulation: 2 }]);
  });

  it('leaves the rest of a shared device to others as soon as it is recorded', async () => {
    const go = join(mkdtempSync(join(tmpdir(), 'oomtune-go-')), 'go');
    writeFileSync(go, '');
    const bench = workbench('submit', [python, 'waits.py'], {
      device: 'cuda:0',
      budget: null,
      share: true,
      env: [`GO=${go}`],
    });
    withGpu(bench);
    const reserved: (number | null)[] = [];
    const records = await bench.deps.records();
    const acquire: typeof records.leasing.acquire = async (request) => {
      const lease = await records.leasing.acquire(request);
      return { ...lease, resize: async (bytes: number | null) => void reserved.push(bytes) };
    };
    bench.deps.records = async () => ({ ...records, leasing: { acquire } });
    expect(await runJob(bench.request, bench.deps)).toMatchObject({ outcome: 'succeeded', launches: 1 });
    const [recorded] = [...bench.recorded.values()];
    expect(reserved).toEqual([Math.ceil((recorded?.peak_bytes as number) * 1.03)]);
  });

  it('is searched for once it has run out of memory, and its own size is not started again', async () => {
    const bench = workbench('run', [python, 'tiny.py'], { budget: '38MiB' });
    const report = await runJob(bench.request, bench.deps);
    expect(report).toMatchObject({ outcome: 'succeeded', config: { effective_batch: 64 } });
    const { launches, journal } = recordOf(bench);
    expect(launches.map(({ purpose, config }) => [purpose, config?.micro_batch])).toEqual([
      ['run', undefined],
      ['run', report.config?.micro_batch],
    ]);
    expect(journal[0]).toMatchObject({ launch: 1, micro_batch: 64, outcome: 'device_oom', phase: 'train' });
    expect(journal.slice(1).every((one) => one.micro_batch < 64)).toBe(true);
    expect([...bench.recorded.values()]).toMatchObject([{ known_bad_micro_batch: 64 }]);
    const notes = bench.events.flatMap((event) => (event.type === 'note' ? [event.text] : []));
    expect(notes.join('\n')).toContain(
      'Out of memory as it stands: what fits is searched, and it runs again from the beg',
    );
  });

  it('is not searched for after any other failure', async () => {
    const bench = workbench('run', [python, '-c', 'import torch; raise SystemExit(7)']);
    expect(await runJob(bench.request, bench.deps)).toMatchObject({ outcome: 'failed', exit_code: 7, launches: 1 });
    expect(bench.recorded.size).toBe(0);
  });

  it('that could not even load ends so, as no batch would help', async () => {
    const bench = workbench('run', [python, '-c', 'import torch; kept = torch.ones(100_000_000)'], { budget: '60MiB' });
    const report = await runJob(bench.request, bench.deps);
    expect(report.failure).toMatchObject({ class: 'device_oom' });
    expect(report.launches).toBeLessThanOrEqual(2);
  });
});

describe('a search comes first', () => {
  const cases: [string, string[], Partial<JobOptions>, boolean][] = [
    ['not where nothing is asked for', ['tiny.py'], {}, true],
    ['where another effective batch is asked for', ['tiny.py'], { effectiveBatch: 128 }, false],
    ['where other precision is asked for', ['tiny.py'], { amp: 'bf16' }, false],
    ['where checkpointing is asked for', ['tiny.py'], { checkpointing: 'on' }, false],
    ['where the fastest is asked for', ['tiny.py'], { objective: 'throughput' }, false],
    ['where the micro-batch is bounded, and not known', ['tiny.py'], { maxBatch: 32 }, false],
    ['where it may not be small, and is not known', ['tiny.py'], { minBatch: 8 }, false],
    ['not where other things are ruled out', ['tiny.py'], { exact: true, accumulation: 'off' }, true],
    ['where a placeholder waits for its value', ['flags.py', '--batch', '{micro_batch}'], {}, false],
    ['where any other does', ['tiny.py', '{amp?--bf16}'], {}, false],
    ['where only the whole batch does', ['tiny.py', '--whole={effective_batch}'], {}, false],
    ['where there is nothing to tune', ['tiny.py'], { tune: false }, false],
  ];
  it.each(cases)('%s', async (_, words, options, expected) => {
    const { request, deps } = workbench('run', [python, ...words], options);
    expect(startsAsItStands(await prepare(request, deps), request.options)).toBe(expected);
  });
});

describe('a run as it stands whose daemon is gone', () => {
  /** Begins it, and lets go of it after its first step. */
  async function begun(environment: Record<string, string>, options: Partial<JobOptions> = {}) {
    const go = join(mkdtempSync(join(tmpdir(), 'oomtune-go-')), 'go');
    const env = Object.entries({ GO: go, ...environment }).map(([name, value]) => `${name}=${value}`);
    const bench = workbench('submit', [python, 'waits.py'], { ...options, env });
    const work = runJob(bench.request, bench.deps);
    await expect.poll(() => bench.events.some(({ type }) => type === 'step'), { timeout: 60_000 }).toBe(true);
    bench.controller.abort(new Detached());
    await expect(work).rejects.toBeInstanceOf(Detached);
    const next = workbench('submit', bench.request.command, { ...options, env });
    Object.assign(next.request, { jobId: bench.request.jobId, environment: bench.request.environment });
    next.request.launches = recordOf(bench).launches;
    return { next, go: () => writeFileSync(go, '') };
  }

  it('is heard by the next, and recorded when it has lasted', async () => {
    const { next, go } = await begun({});
    const work = runJob(next.request, next.deps);
    await expect.poll(() => next.events.some(({ type }) => type === 'running'), { timeout: 30_000 }).toBe(true);
    go();
    expect(await work).toMatchObject({ outcome: 'succeeded', launches: 1, config: { micro_batch: 64 } });
    expect([...next.recorded.values()]).toMatchObject([{ micro_batch: 64, own_batch: 64, own_accumulation: 1 }]);
    expect(logOf(next.request.launches[0] as never)).toBe('knobs []\ntrained 12\n');
  });

  it('is searched for by the next where it then runs out of memory', async () => {
    const { next, go } = await begun({ WIDER: '1000' }, { budget: '90MiB', retries: 0 });
    const work = runJob(next.request, next.deps);
    await expect.poll(() => next.events.some(({ type }) => type === 'running'), { timeout: 30_000 }).toBe(true);
    go();
    const report = await work;
    const { launches } = recordOf(next);
    expect(report, JSON.stringify(next.events.filter(({ type }) => type === 'note'))).toMatchObject({
      outcome: 'succeeded',
      config: { effective_batch: 64 },
    });
    expect(launches.map(({ purpose }) => purpose)).toEqual(['run', 'search', 'run']);
    expect(report.config?.micro_batch).toBeLessThan(64);
  });
});
