import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parse } from 'yaml';
import { z } from 'zod';
import type { Diagnosis } from '../../src/contract/diagnosis.js';
import type { LedgerReading } from '../../src/contract/launch.js';
import { type DiagnoseInput, diagnose } from '../../src/worker/diagnosis/index.js';

const FOLDER = fileURLToPath(new URL('../fixtures/logs/', import.meta.url));

const expectation = z
  .object({
    class: z.string(),
    exit: z.number().optional(),
    signal: z.string().optional(),
    device: z.enum(['cpu', 'cuda']).optional(),
    growth: z.object({ bytesPerStep: z.number(), steps: z.number() }).optional(),
    /** Named figures must be so, all others null. Left out: not looked at. */
    fields: z.record(z.string(), z.number().nullable()).optional(),
    certain: z.boolean().optional(),
    ambiguous: z.boolean().optional(),
    phase: z.string().optional(),
    reason: z.string().optional(),
    line: z.number().optional(),
    rank: z.string().optional(),
    neighbours: z.array(z.tuple([z.number(), z.number()])).optional(),
    soft: z.array(z.number()).optional(),
    /** What the CPU's ledger saw: nothing refused, or one allocation. */
    ledger: z.enum(['none', 'refused']).optional(),
    signature: z.string().optional(),
    /** Stands in the cause or the advice. */
    says: z.string().optional(),
    /** Does not. */
    never_says: z.string().optional(),
  })
  .strict();

export type Expectation = z.infer<typeof expectation>;

export interface Case {
  name: string;
  expected: Expectation;
  log: Buffer;
}

const LONG: Case[] = Object.entries(
  z.record(z.string(), expectation).parse(parse(readFileSync(`${FOLDER}expected.yaml`, 'utf8'))),
).map(([name, expected]) => ({ name, expected, log: readFileSync(`${FOLDER}${name}.log`) }));

/** Logs that stand in lists, by the list's name. */
const LISTS = readdirSync(FOLDER)
  .filter((file) => file.endsWith('.yaml') && file !== 'expected.yaml')
  .sort();
const SHORT: Case[] = LISTS.flatMap((file) =>
  z
    .array(expectation.extend({ log: z.string() }).strict())
    .parse(parse(readFileSync(`${FOLDER}${file}`, 'utf8')))
    .map(({ log, ...expected }, i) => ({
      name: `${file.replace('.yaml', '')}-${i + 1}: ${(log.trimEnd().split('\n').at(-1) ?? '').slice(0, 60)}`,
      expected,
      log: Buffer.from(log),
    })),
);

export const CORPUS: Case[] = [...LONG, ...SHORT];

const LEDGERS: Record<'none' | 'refused', LedgerReading> = {
  none: {
    devices: [
      {
        device: 'cpu',
        live_bytes: 300,
        peak_bytes: 400,
        overhead_bytes: 0,
        budget_bytes: 1000,
        measured_by: null,
      },
    ],
    refused: 0,
    refusals: [],
    blind: false,
  },
  refused: {
    devices: [],
    refused: 1,
    refusals: [
      {
        pid: 7,
        api: 'mmap',
        size_bytes: 200,
        live_bytes: 900,
        budget_bytes: 1000,
        by: 'budget',
        device: 'cpu',
        at: '2026-01-01T00:00:00Z',
      },
    ],
    blind: false,
  },
};

export function judgeCase(expected: Expectation, log: Buffer, more: Partial<DiagnoseInput> = {}): Promise<Diagnosis> {
  return diagnose({
    log: [log],
    exitCode: expected.exit ?? null,
    signal: expected.signal ?? null,
    device: expected.device ?? null,
    growth: expected.growth ?? null,
    ledger: expected.ledger ? LEDGERS[expected.ledger] : null,
    ...more,
  });
}

/** The figures of a diagnosis that were expected, in the form in which they were. */
export function expectedFields(expected: Expectation): Diagnosis['fields'] | null {
  if (!expected.fields) return null;
  const none = { tried_bytes: null, total_bytes: null, free_bytes: null, allocated_bytes: null, reserved_bytes: null };
  return { ...none, gpu: null, ...expected.fields } as Diagnosis['fields'];
}
