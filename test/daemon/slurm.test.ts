import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { createLog } from '../../src/common/log.js';
import { NO_FIGURES } from '../../src/contract/diagnosis.js';
import type { RunReport } from '../../src/contract/reports.js';
import type { SlurmPlace } from '../../src/contract/slurm.js';
import { tidyRuns } from '../../src/daemon/retention.js';
import { accountingRows, accountOf, queueRows, rowOf, type SlurmRow } from '../../src/daemon/slurm/rows.js';
import { batchScript } from '../../src/daemon/slurm/script.js';
import { type Left, standing } from '../../src/daemon/slurm/standing.js';
import { openStore } from '../../src/store/index.js';
import { useHome } from '../store/home.js';
import { job } from '../store/samples.js';

const place: SlurmPlace = { cluster: 'c', uid: 0, id: '12', task: null, script: '/s/script', folder: '/s/0' };
const row = (state: string, more: Partial<SlurmRow> = {}): SlurmRow => ({
  state,
  reason: '',
  nodes: 'node7',
  partition: 'gpu',
  startedAt: 1795400000,
  exitCode: null,
  ...more,
});
const nothing: Left = { ended: null, report: null, preempted: false };
const report = (more: Partial<RunReport>): RunReport => ({
  schema: 1,
  job: 'j-abcd',
  exit_code: 0,
  signal: null,
  outcome: 'succeeded',
  config: null,
  cut: null,
  key: null,
  devices: [],
  refused: 0,
  refusals: [],
  blind: false,
  resident_bytes: null,
  failure: null,
  launches: 1,
  wall_s: 1,
  ...more,
});
const verdict: NonNullable<RunReport['failure']> = {
  class: 'user_error',
  certain: true,
  evidence: null,
  line: null,
  fields: NO_FIGURES,
  phase: 'unknown',
  cause: '',
  advice: '',
};
const now = Date.parse('2026-11-23T05:00:00.000Z');
const stands = (seen: SlurmRow | null, left = nothing, more = {}) =>
  standing(job({ slurm: place, ...more }), { ...place, ...(more as { slurm?: SlurmPlace }).slurm }, seen, left, now);

describe('what a job in Slurm is to oomtune', () => {
  it.each([
    ['PENDING', 'queued'],
    ['CONFIGURING', 'queued'],
    ['REQUEUED', 'queued'],
    ['REQUEUE_HOLD', 'queued'],
    ['RUNNING', 'running'],
    ['COMPLETING', 'running'],
    ['SUSPENDED', 'running'],
    ['CANCELLED', 'cancelled'],
    ['REVOKED', 'cancelled'],
    ['TIMEOUT', 'timeout'],
    ['DEADLINE', 'timeout'],
    ['COMPLETED', 'succeeded'],
    ['FAILED', 'failed'],
    ['NODE_FAIL', 'failed'],
    ['BOOT_FAIL', 'failed'],
    ['PREEMPTED', 'failed'],
    ['OUT_OF_MEMORY', 'failed'],
  ])('%s is %s', (state, wanted) => {
    expect(stands(row(state))).toMatchObject({ state: wanted });
  });

  it('is told why where Slurm ended it', () => {
    expect(stands(row('TIMEOUT', { reason: 'TimeLimit' }))).toMatchObject({
      failure: { class: 'timeout', evidence: "Slurm ended Slurm's job 12: TIMEOUT (TimeLimit), on node7." },
    });
    expect(stands(row('OUT_OF_MEMORY'))).toMatchObject({ failure: { class: 'host_oom' } });
    expect(stands(row('PREEMPTED'))).toMatchObject({ failure: { class: 'killed' } });
    expect(stands(row('CANCELLED'))).toMatchObject({ failure: null, reason: expect.stringContaining('CANCELLED') });
  });

  it('has ended in its time also where oomtune wrote its end before Slurm did', () => {
    const left = {
      ...nothing,
      ended: { code: 143, at: now / 1000 },
      report: report({ outcome: 'cancelled', exit_code: null, signal: 'SIGTERM' }),
    };
    // told to end: by whom, only Slurm knows
    expect(stands(row('RUNNING'), left)).toMatchObject({ state: 'running' });
    expect(stands(row('COMPLETING'), left)).toMatchObject({ state: 'running' });
    expect(stands(row('TIMEOUT'), left)).toMatchObject({ state: 'timeout', exit_code: 143 });
    expect(stands(row('CANCELLED'), left)).toMatchObject({ state: 'cancelled' });
    expect(stands(null, left)).toMatchObject({ state: 'cancelled' });
  });

  it('is told which option gives it more of the host', () => {
    const advice = expect.stringContaining('--sbatch --mem=');
    expect(stands(row('OUT_OF_MEMORY'))).toMatchObject({ failure: { class: 'host_oom', fields: { advice } } });
    const failure = { ...verdict, class: 'host_oom' as const, advice: 'Give the job more host memory.' };
    const left = {
      ...nothing,
      ended: { code: 1, at: 1 },
      report: report({ outcome: 'failed', exit_code: null, failure }),
    };
    expect(stands(row('FAILED'), left)).toMatchObject({ failure: { class: 'host_oom', fields: { advice } } });
  });

  it('was preempted where it ended in its time of grace, which Slurm calls a failure of its own', () => {
    const left = {
      ended: { code: 143, at: now / 1000 },
      report: report({ outcome: 'cancelled', exit_code: 0 }),
      preempted: true,
    };
    const evidence = "Slurm preempted Slurm's job 12, on node7, and does not start it again.";
    const end = { state: 'failed', exit_code: 143, failure: { class: 'killed', evidence } };
    expect(stands(row('FAILED'), left)).toMatchObject(end);
    expect(stands(row('PREEMPTED'))).toMatchObject({ ...end, exit_code: null });
    expect(stands(null, left)).toMatchObject({ state: 'failed', failure: { class: 'killed' } });
    const waits = stands(row('PENDING', { reason: 'BeginTime' }), { ...nothing, preempted: true });
    expect(waits).toMatchObject({ state: 'queued', reason: expect.stringMatching(/^was preempted, and waits/) });
  });

  it('is ended by its own report before Slurm sees the end', () => {
    const left = {
      ...nothing,
      ended: { code: 7, at: now / 1000 },
      report: report({ outcome: 'failed', exit_code: 7 }),
    };
    expect(stands(row('RUNNING'), left)).toMatchObject({ state: 'failed', exit_code: 7 });
    // but it waits for another start where Slurm has been told to start it again
    expect(stands(row('PENDING', { reason: 'BeginTime' }), left)).toMatchObject({ state: 'queued' });
  });

  it('tells what fits nowhere, and a next start that takes a smaller size', () => {
    expect(stands(row('FAILED'), { ...nothing, ended: { code: 3, at: 1 } })).toMatchObject({ state: 'exhausted' });
    const left = {
      ...nothing,
      ended: { code: 75, at: 1 },
      report: report({ outcome: 'failed', exit_code: 1, next_start: 'Micro-batch 64 is recorded as too large.' }),
    };
    expect(stands(row('FAILED'), left)).toMatchObject({
      state: 'failed',
      reason: expect.stringContaining('oomtune retry'),
    });
    const late = { options: { ...job().options, timeSeconds: 60 }, started_at: new Date(now - 61_000).toISOString() };
    expect(stands(row('FAILED'), { ...nothing, ended: { code: 4, at: now / 1000 } }, late)).toMatchObject({
      state: 'timeout',
      failure: { class: 'timeout' },
    });
  });

  it('is given a minute to be listed again, and then is lost', () => {
    const first = stands(null);
    expect(first).toMatchObject({ slurm: { missing_since: new Date(now).toISOString() } });
    expect(first).not.toHaveProperty('state');
    const since = { slurm: { ...place, missing_since: new Date(now - 61_000).toISOString() } };
    expect(stands(null, nothing, since)).toMatchObject({ state: 'failed', failure: { class: 'killed' } });
    expect(stands(row('RUNNING'), nothing, since)).toMatchObject({ state: 'running', slurm: { missing_since: null } });
  });

  it('is no news where nothing has changed', () => {
    const first = stands(row('RUNNING'));
    expect(standing({ ...job(), ...first } as never, place, row('RUNNING'), nothing, now)).toBeNull();
  });
});

describe("Slurm's listings", () => {
  it('are read whatever stands in a path', () => {
    const text =
      '12|N/A|PENDING|Priority||gpu|N/A|/a|b/script\n12|3|RUNNING|None|n[1-2]|gpu|1795400000|/a|b/script\nslurm: noise\n';
    const rows = queueRows(text);
    expect(rows).toHaveLength(2);
    expect(rowOf(rows, { ...place, script: '/a|b/script' })).toMatchObject({
      state: 'PENDING',
      reason: 'Priority',
      nodes: '',
    });
    expect(rowOf(rows, { ...place, script: '/a|b/script', task: 3 })).toMatchObject({
      nodes: 'n[1-2]',
      startedAt: 1795400000,
    });
    // another job of the same number, of a cluster that was set up anew
    expect(rowOf(rows, place)).toBeNull();
  });

  it('of accounts tell by whom it was cancelled, and signals', () => {
    // as sacct of 22.05 prints them; lines of steps follow where --allocations is left out
    const rows = accountingRows(
      [
        '12|CANCELLED by 1000|0:0|0:0|1795400000|node7|gpu|None',
        '12_3|FAILED|3:0|3:0|1795400000|node7|gpu|None',
        '12.batch|FAILED|3:0||||',
        '13|FAILED|15:0|143:0|1795400000|node7|gpu|None',
        '14|OUT_OF_MEMORY|0:125|0:0|1795400000|node7|gpu|None',
        '15|FAILED|0:9|0:0|1795400000|node7|gpu|None',
        '16|CANCELLED by 1000|0:0|0:0|1795400000|None assigned|gpu|None',
      ].join('\n'),
    );
    const of = (id: string, task: number | null = null) => accountOf(rows, { ...place, id, task });
    expect(of('12')).toMatchObject({ state: 'CANCELLED', exitCode: null, nodes: 'node7', reason: '' });
    expect(of('12', 3)).toMatchObject({ state: 'FAILED', exitCode: 3 });
    expect(of('13')).toMatchObject({ state: 'FAILED', exitCode: 143 });
    expect(of('14')).toMatchObject({ state: 'OUT_OF_MEMORY', exitCode: null });
    expect(of('15')).toMatchObject({ state: 'FAILED', exitCode: 137 });
    expect(of('16')).toMatchObject({ state: 'CANCELLED', exitCode: null, nodes: '' });
    expect(of('99')).toBeNull();
  });
});

describe('the batch script', () => {
  const folder = mkdtempSync(join(tmpdir(), 'oomtune-batch-'));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  const words = ["it's", '$(touch pwned)', '`x`', 'a\nb', '"', '\\', '*', '-', ''];
  const write = (more: Partial<Parameters<typeof batchScript>[0]> = {}) => {
    const text = batchScript({
      folder: join(folder, "odd 'folder"),
      cwd: folder,
      program: ['/nowhere/node', '/nowhere/oomtune'],
      words: ['--name', "a'b$(x)"],
      tasks: [{ task: 0, command: words, index: null }],
      retries: 1,
      redisHost: null,
      ...more,
    });
    writeFileSync(join(folder, 'script'), text);
    mkdirSync(join(folder, "odd 'folder", '0'), { recursive: true });
    return text;
  };
  /** Stand-ins for srun and scontrol: one prints what it is given and ends as it is told, the other is written down. */
  const run = (code: number, env: NodeJS.ProcessEnv = {}) => {
    const bin = join(folder, 'bin');
    mkdirSync(bin, { recursive: true });
    writeFileSync(join(bin, 'srun'), `#!/bin/bash\nprintf '%s\\0' "$@"\nenv | grep OOMTUNE_ >&2\nexit ${code}\n`, {
      mode: 0o755,
    });
    writeFileSync(join(bin, 'scontrol'), `#!/bin/sh\necho "$@" >> '${folder}/asked'\n`, { mode: 0o755 });
    try {
      return execFileSync('bash', [join(folder, 'script')], {
        encoding: 'utf8',
        stdio: ['ignore', 'pipe', 'pipe'],
        env: { PATH: `${bin}:${process.env.PATH}`, SLURM_JOB_ID: '12', ...env },
      });
    } catch (error) {
      return error as { status: number; stderr: string };
    }
  };
  const ended = () => readFileSync(join(folder, "odd 'folder", '0', 'ended'), 'utf8');

  it('hands the command on to the letter, and writes how it ended', () => {
    write();
    const said = String(run(0)).split('\0');
    expect(said.slice(said.indexOf('--') + 1, -1)).toEqual(words);
    expect(said).toContain("a'b$(x)");
    expect(said.slice(0, 3)).toEqual(['--ntasks=1', 'oomtune', 'run']); // its own is not on this node
    expect(ended()).toMatch(/^0 \d+\n$/);
    expect(run(9)).toMatchObject({ status: 9 });
    expect(ended()).toMatch(/^9 \d+\n$/);
  });

  it('asks to be started again for want of memory, so often and no more', () => {
    write();
    rmSync(join(folder, 'asked'), { force: true });
    expect(run(75)).toMatchObject({ status: 75 });
    expect(readFileSync(join(folder, 'asked'), 'utf8')).toBe('requeue 12\n');
    expect(() => ended()).toThrow(); // it has not ended
    const last = run(75, { SLURM_RESTART_COUNT: '1' }) as { status: number; stderr: string };
    expect(last.status).toBe(75);
    expect(last.stderr).toMatch(/OOMTUNE_FIRST_START=\d+/);
    expect(readFileSync(join(folder, 'asked'), 'utf8')).toBe('requeue 12\n');
    expect(ended()).toMatch(/^75 \d+\n$/);
  });

  it('starts one task of an array again, not all of them', () => {
    write();
    rmSync(join(folder, 'asked'), { force: true });
    // the last task has the number of the whole
    mkdirSync(join(folder, "odd 'folder", '0'), { recursive: true });
    run(75, { SLURM_ARRAY_JOB_ID: '12', SLURM_ARRAY_TASK_ID: '0' });
    expect(readFileSync(join(folder, 'asked'), 'utf8')).toBe('requeue 12_0\n');
  });

  it('leaves the Redis of another machine alone', () => {
    write({ redisHost: 'elsewhere', tasks: [{ task: 0, command: ['true'], index: 0 }] });
    const { stderr } = run(1, { OOMTUNE_REDIS_URL: 'unix:///x', TMPDIR: '/var/tmp' }) as { stderr: string };
    expect(stderr).not.toContain('OOMTUNE_REDIS_URL');
    expect(stderr).toContain('OOMTUNE_HOME=/var/tmp/oomtune-home-');
  });
});

describe('what submissions to Slurm leave on the disk', () => {
  const home = useHome();

  it('goes with what else ended long ago, but not before its jobs have ended', async () => {
    const store = await openStore();
    const made = (name: string, days: number) => {
      const dir = join(home, 'slurm', name, '0');
      mkdirSync(dir, { recursive: true });
      const at = Date.now() / 1000 - days * 86_400;
      for (const path of [dir, join(home, 'slurm', name)]) utimesSync(path, at, at);
      return join(home, 'slurm', name, 'script');
    };
    made('b-old1', 40);
    made('b-new1', 1);
    const script = made('b-live', 40);
    await store.jobs.create(job({ slurm: { ...place, script } }));
    expect(await store.jobs.inSlurm()).toBe(true);
    expect(await store.jobs.pending()).toEqual([]); // no daemon takes it
    await tidyRuns(store, createLog('test', 'silent'));
    expect(readdirSync(join(home, 'slurm')).sort()).toEqual(['b-live', 'b-new1']);
    await store.close();
  });
});
