import { describe, expect, it } from 'vitest';
import { CORPUS, expectedFields, judgeCase } from './corpus.js';

describe('a log of the corpus', () => {
  it.each(CORPUS)('$name is judged right', async ({ expected, log }) => {
    const diagnosis = await judgeCase(expected, log);
    expect(diagnosis.class).toBe(expected.class);
    for (const key of ['certain', 'ambiguous', 'phase', 'reason', 'line', 'rank', 'signature'] as const) {
      if (expected[key] !== undefined) expect(diagnosis[key], key).toBe(expected[key]);
    }
    const fields = expectedFields(expected);
    if (fields) expect(diagnosis.fields).toEqual(fields);
    if (expected.neighbours) {
      expect(diagnosis.memory?.neighbours.map((n) => [n.pid, n.bytes])).toEqual(expected.neighbours);
    }
    const said = `${diagnosis.cause} ${diagnosis.advice}`;
    if (expected.says) expect(said).toContain(expected.says);
    if (expected.never_says) expect(said).not.toContain(expected.never_says);
    if (expected.soft) expect(diagnosis.soft_ooms).toEqual(expected.soft);
    expect(diagnosis.cause).not.toBe('');
    expect(diagnosis.advice).not.toBe('');
    if (diagnosis.class !== 'ok' && log.length > 0) expect(diagnosis.evidence).not.toBe('');
  });

  it('is one of many: enough logs, classes and programs', () => {
    expect(CORPUS.length).toBeGreaterThan(400);
    const classes = new Set(CORPUS.map((c) => c.expected.class));
    expect([...classes].sort()).toEqual(
      'cancelled device_fault device_oom disk_full host_oom killed network ok shm timeout user_error'.split(' '),
    );
  });
});
