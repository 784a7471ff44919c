import { expect, it } from 'vitest';
import { explainJob, FOREGROUND } from '../../src/cli/explain-view.js';
import { HIDDEN, type JobRecord, withNote } from '../../src/contract/job.js';
import { observation } from '../dashboard/search.js';
import { job, options } from '../store/samples.js';

const explain = (changes: Partial<JobRecord>) =>
  explainJob(job({ host: 'h', ...changes }), null, null, (_, text) => text);
const now = new Date().toISOString();

it('says that a running job stands still, and why, once', () => {
  const paused = { state: 'running', started_at: now, reason: 'paused: its memory stays its own' } as const;
  expect(explain(paused)).toMatch(/and runs on h since .*; paused: its memory stays its own\./);
  expect(explain({ ...paused, reason: null })).toMatch(/and runs on h since [^;]*\.$/m);
  const sharing = { job: 'j-other222', name: 'other', verdict: 'apart', gain: null } as JobRecord['sharing'];
  expect(explain({ ...paused, sharing })).toContain('; paused');
  expect(explain({ ...paused, reason: 'waits for its turn', sharing }).match(/waits for its turn/g)).toHaveLength(1);
});

it('shows no evidence that says only what was said', () => {
  const failed = (reason: string | null, evidence: string, fields: Record<string, string>) =>
    explain({ state: 'failed', ended_at: now, reason, failure: { class: 'killed', evidence, fields } });
  const cause = 'It was told to end (SIGTERM).';
  expect(failed(null, cause, { cause })).toMatch(/cause: It was told to end/);
  expect(failed(null, cause, { cause })).not.toContain('evidence');
  expect(failed('Exec format error', 'Exec format error', {})).not.toContain('evidence');
  expect(
    failed(null, 'ended with exit code 7', { cause: 'It ended with exit code 7, with no error text.' }),
  ).not.toContain('evidence');
  expect(failed(null, 'KeyError: 1', { cause })).toContain('evidence: KeyError: 1');
  const late = {
    class: 'timeout',
    evidence: 'It ran past its time limit.',
    fields: { cause: 'It ran past its time limit.' },
  };
  expect(
    explain({ state: 'timeout', ended_at: now, reason: null, failure: late as JobRecord['failure'] }),
  ).not.toContain('evidence');
});

it('tells the time limit and what helps, and no exit code where there is none', () => {
  const failure = { class: 'timeout', evidence: 'It ran past it.', fields: { advice: 'Give it more.' } } as const;
  const late = {
    state: 'timeout',
    ended_at: now,
    reason: null,
    options: options({ timeSeconds: 5400 }),
    failure,
  } as const;
  expect(explain(late)).toMatch(/ran out of time .*, its limit of 1h30m\.\n.*It ran past it\.\n.*Give it more\./);
  expect(explain({ state: 'failed', ended_at: now, reason: 'It was killed.' })).toMatch(
    /It failed .* ago\. It was killed\./,
  );
  expect(explain({ state: 'failed', ended_at: now, reason: null, exit_code: 3 })).toContain(': exit code 3.');
});

it('tells with what it ran, as far as that was told', () => {
  const versions = { oomtune: '1.2.3', node: '24.1.0', python: '3.11.2', torch: '2.15.0', device_model: 'H200' };
  expect(explain({ versions: { ...versions, driver: '570.86' } })).toContain(
    '\noomtune 1.2.3, Node 24.1.0, Python 3.11.2, torch 2.15.0, H200, driver 570.86.',
  );
  expect(explain({ versions: { ...versions, python: null, torch: null, driver: null } })).toContain(
    '\noomtune 1.2.3, Node 24.1.0, H200.',
  );
});

it('tells the exit code or the signal of each failure, and where in the script it was', () => {
  const fields = { signal: null, line: 'train.py:41 in main', steps: 12 };
  const failure = { class: 'user_error', evidence: 'ValueError: no', fields } as const;
  const failed = { state: 'failed', ended_at: now, reason: null } as const;
  expect(explain({ ...failed, exit_code: 1, failure })).toMatch(
    /: user_error \(exit code 1\)\.\n {2}where: train\.py:41 in main, after 12 steps\n {2}evidence: ValueError: no$/,
  );
  const killed = { ...failure, class: 'killed', fields: { signal: 'SIGKILL', line: null, steps: 0 } } as const;
  expect(explain({ ...failed, failure: killed })).toMatch(/: killed \(SIGKILL\)\.\n {2}evidence/);
  expect(explain({ ...failed, state: 'timeout', failure: { ...killed, class: 'timeout' } })).toMatch(
    /ran out of time \(SIGKILL\) .* ago\./,
  );
  const same = { class: 'timeout', evidence: 'It ran past it.', fields: { cause: 'It ran past it.' } } as const;
  expect(explain({ ...failed, state: 'timeout', failure: same })).toMatch(/\n {2}cause: It ran past it\.$/);
});

it('tells what a size that ran out of memory had come to, and why nothing fits', () => {
  const journal = [observation(4, 36_700_160, { outcome: 'device_oom' }), observation(2, null)];
  const failure = {
    class: 'device_oom',
    evidence: 'refused',
    fields: { cause: 'The model alone is too large.' },
  } as const;
  const told = explain({ state: 'exhausted', ended_at: now, reason: null, failure, journal });
  expect(told).toContain('micro-batch 4: out of memory, peak 35 MiB\n');
  expect(told).toContain('micro-batch 2: out of memory\n');
  expect(told).toContain('.\n  cause: The model alone is too large.\n  evidence: refused');
});

it('names the command or the file that shows the output, where there is one', () => {
  const launches = [{ launch: 1, dir: '/runs/j-one/1', purpose: 'run', config: null }] as const;
  const begun = job({ job: 'j-one1', launches: [...launches] });
  const told = (...more: [] | [typeof FOREGROUND]) => explainJob(begun, null, null, (_, text) => text, ...more);
  expect(told()).toContain('\n\n`oomtune logs j-one1` shows its output.');
  expect(told(FOREGROUND)).toContain('\n\nIts output is in /runs/j-one/1/log.');
  expect(explain({})).not.toContain('output');
});

it('keeps the latest notes, each once and no longer than it may be', () => {
  const same = withNote(['a'], 'a');
  expect([same, withNote(same, 'b')]).toEqual([['a'], ['a', 'b']]);
  const many = Array.from({ length: 40 }, (_, n) => `note ${n}`).reduce<readonly string[]>(withNote, []);
  expect([many.length, many.at(-1)]).toEqual([32, 'note 39']);
  expect(withNote([], 'x'.repeat(9000))[0]).toHaveLength(2000);
  expect(explain({ notes: ['one', 'two\nlines'] })).toMatch(/\n\nnote: one\nnote: two lines$/);
});

it('tells the folder, the budget and the options that were given', () => {
  expect(explain({ options: options({ effectiveBatch: 64, retries: 2, preset: 'auto' }) })).toContain(
    'Its folder is /tmp, its budget 200 MiB and its options `--device cpu --budget 200MiB --effective-batch 64 --no-tune`.',
  );
  const plain = options({ device: null, budget: null, preset: 'auto', tune: true, retries: 2 });
  expect(explain({ options: plain })).toContain('Its folder is /tmp.');
  expect(explain({ options: plain, budget_bytes: 2 ** 30 })).toContain('Its folder is /tmp and its budget 1 GiB.');
  expect(explain({ command: [HIDDEN] })).not.toContain('folder');
});

it('says what helps a job that nobody will start as things stand', () => {
  const waits = (reason: string) => explain({ state: 'queued', host: null, started_at: null, reason });
  expect(waits('waits for a daemon')).toMatch(/and waits for a daemon\.\n {2}`oomtune daemon start` starts one; /);
  expect(waits('no host has cuda:0; there are h')).toMatch(
    /and waits: no host has cuda:0; there are h\.\n {2}Start a daemon on a host that has it .*`oomtune cancel j-/,
  );
  expect(waits('waits in its queue for h')).not.toContain('daemon start');
});
