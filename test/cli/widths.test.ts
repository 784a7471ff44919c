import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { explainJob, explainRecommendation } from '../../src/cli/explain-view.js';
import { firstHelp } from '../../src/cli/first-help.js';
import { shown, width } from '../../src/cli/output.js';
import { createProgress } from '../../src/cli/progress.js';
import { renderRecommendations } from '../../src/cli/recommend-view.js';
import { renderJob, renderJobs } from '../../src/cli/status-view.js';
import { facts, table } from '../../src/cli/table.js';
import { renderTopDevices, renderTopJobs, type TopPicture } from '../../src/cli/top/view.js';
import { renderUsers } from '../../src/cli/users-view.js';
import { jobState } from '../../src/contract/job.js';
import type { Progress } from '../../src/worker/types.js';
import { gpu, job, options, recommendation } from '../store/samples.js';

const WIDTHS = [60, 80, 100];
const plain = (_style: unknown, text: string): string => text;
const bold = (_style: unknown, text: string): string => `\u001b[1m${text}\u001b[22m`;

const word = fc.string({ unit: fc.constantFrom('a', 'B', '-', '/', ':', '7', 'é', '日', '́', '·'), maxLength: 30 });
const words = fc.array(word, { maxLength: 14 }).map((some) => some.join(' '));

/** A line is no longer than the terminal is wide, or has no place to be broken at; nothing of the words is lost. */
function expectFits(text: string, columns: number): void {
  for (const line of shown(text, { isTTY: true, columns }).split('\n')) {
    if (width(line) > columns) expect(line.trim().replace(/ {2,}/g, ' ').split(' ')).toHaveLength(1);
  }
}

/** `table` asks stdout for its room. */
function inTerminal<T>(columns: number, work: () => T): T {
  const before = { isTTY: process.stdout.isTTY, columns: process.stdout.columns };
  Object.assign(process.stdout, { isTTY: true, columns });
  try {
    return work();
  } finally {
    Object.assign(process.stdout, before);
  }
}

describe.each(WIDTHS)('in a terminal of %s columns', (columns) => {
  it('any table fits, with all that has to be typed and without a broken row', () => {
    const rows = fc.array(fc.record({ id: fc.stringMatching(/^j-[a-z0-9]{8}$/), a: words, b: word, c: words }), {
      minLength: 1,
      maxLength: 5,
    });
    fc.assert(
      fc.property(rows, fc.boolean(), (some, paintId) => {
        const text = table(
          some,
          [
            { title: 'JOB', value: (row) => (paintId ? bold('', row.id) : row.id) },
            { title: 'NAME', value: (row) => row.a, least: 10, widest: 24 },
            { title: 'B', value: (row) => row.b, align: 'right' },
            { title: 'SECOND', value: (row) => row.c, least: 12 },
            { title: 'REASON', value: (row) => row.a, least: 12, widest: 80 },
          ],
          bold,
          columns,
        );
        for (const line of text.split('\n')) if (width(line) > columns) expect(line.trim().split(/ +/)).toHaveLength(1);
        for (const { id } of some) expect(text).toContain(id);
      }),
    );
  });

  it('the tables and pages of the verbs fit, whatever the jobs are called', () => {
    const jobs = fc.array(
      fc.record({
        name: word,
        owner: fc.option(word),
        state: fc.constantFrom(...jobState.options),
        reason: fc.option(words),
        host: fc.option(word),
        devices: fc.array(fc.constantFrom('cuda:0', 'cuda:10', 'cpu'), { maxLength: 8 }),
        command: fc.array(words, { minLength: 1, maxLength: 6 }),
      }),
      { minLength: 1, maxLength: 4 },
    );
    fc.assert(
      fc.property(jobs, words, (some, model) => {
        const records = some.map((one, at) => job({ ...one, options: options({ priority: at, tags: ['a/b'] }) }));
        const configs = [recommendation({ gpu_model: model }), recommendation({ key: 'other:cpu:1g:1x' })];
        inTerminal(columns, () => {
          expectFits(renderJobs(records, [], plain), columns);
          for (const record of records) expectFits(renderJob(record, plain), columns);
          expectFits(renderRecommendations(configs, plain), columns);
          expectFits(renderRecommendations(configs.slice(0, 1), plain), columns);
          const share = { device_seconds: 1e7, share: 0.5, gpus: 8, gpus_limit: 16, working: 3, waiting: 4 };
          expectFits(renderUsers([{ user: model, ...share, waiting_limit: null }], plain), columns);
        });
      }),
      { numRuns: 40 },
    );
  });

  it('what a search shows and what explain tells fit', () => {
    fc.assert(
      fc.property(words, word, fc.integer({ min: 1, max: 10_000_000 }), (said, name, size) => {
        const record = {
          ...{ launch: 1, micro_batch: size, amp: 'bf16' as const, checkpointing: true, steps: 3 },
          ...{ peak_bytes: size * 1000, step_s: 0.1, samples_per_s: size, why: said },
        };
        const events = [
          { type: 'device', device: { ...gpu(0), model: said }, budgetBytes: 2 ** 30 },
          { type: 'interpreter', path: `/${name}`, torch: '2.15.0' },
          { type: 'launch', launch: 1, rung: { amp: 'bf16', checkpointing: true }, why: said },
          { type: 'probing', launch: 1, probe: { micro_batch: size, why: said } },
          { type: 'probe', record: { ...record, outcome: 'fit', evidence: null } },
          { type: 'probe', record: { ...record, outcome: 'device_oom', evidence: said } },
          { type: 'note', text: said },
          { type: 'waiting', reason: said },
          { type: 'found', report: { wall_s: 12 } },
        ] as unknown as Progress[];
        let written = '';
        const stream = {
          isTTY: true,
          columns,
          write: (text: string) => {
            written += text;
          },
        };
        const view = createProgress(stream, { NO_COLOR: '1' });
        for (const event of events) view.show(event);
        for (const line of written.replaceAll('\r\u001b[K', '\n').split('\n')) {
          const room = width(line) <= columns || line.trim().replace(/ {2,}/g, ' ').split(' ').length === 1;
          expect(room, line).toBe(true);
        }
        inTerminal(columns, () => {
          const failed = job({ name, state: 'failed', reason: said, command: [name || 'x', said] });
          expectFits(explainJob(failed, null, null, plain), columns);
          expectFits(explainRecommendation(recommendation({ gpu_model: said }), plain), columns);
          const picture = {
            devices: [{ ...gpu(0), model: said, fault: null, reserved_bytes: size, holders: [] }],
            ...{ jobs: [failed], foreground: [], expected: new Map() },
          } as unknown as TopPicture;
          expectFits(renderTopDevices(picture, plain), columns);
          expectFits(renderTopJobs(picture, failed.job, plain), columns);
        });
      }),
      { numRuns: 60 },
    );
  });

  it('values stand under their column where they go on', () => {
    const text = facts([
      ['name', 'a value of many words '.repeat(8).trim()],
      ['other', 'short'],
    ]);
    const lines = shown(text, { isTTY: true, columns }).split('\n');
    expect(lines.length).toBeGreaterThan(2);
    for (const line of lines.slice(1, -1)) expect(line).toMatch(/^ {9}\S/);
    expectFits(firstHelp(columns), columns);
  });
});

it('counts what letters take: two columns in East Asia, none for marks', () => {
  expect(['abc', '日本', 'e\u0301', '\u001b[1mab\u001b[22m', '…'].map(width)).toEqual([3, 4, 1, 2, 1]);
});
