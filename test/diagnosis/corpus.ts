import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parse } from 'yaml';
import { z } from 'zod';
import { type DiagnoseInput, diagnose } from '../../src/worker/diagnosis/index.js';
import type { Diagnosis } from '../../src/worker/types.js';

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

const SHORT: Case[] = z
  .array(expectation.extend({ log: z.string() }).strict())
  .parse(parse(readFileSync(`${FOLDER}short.yaml`, 'utf8')))
  .map(({ log, ...expected }, i) => ({
    name: `short-${i + 1}: ${(log.trimEnd().split('\n').at(-1) ?? '').slice(0, 60)}`,
    expected,
    log: Buffer.from(log),
  }));

export const CORPUS: Case[] = [...LONG, ...SHORT];

export function judgeCase(expected: Expectation, log: Buffer, more: Partial<DiagnoseInput> = {}): Promise<Diagnosis> {
  return diagnose({
    log: [log],
    exitCode: expected.exit ?? null,
    signal: expected.signal ?? null,
    device: expected.device ?? null,
    growth: expected.growth ?? null,
    ...more,
  });
}

/** The figures of a diagnosis that were expected, in the form in which they were. */
export function expectedFields(expected: Expectation): Diagnosis['fields'] | null {
  if (!expected.fields) return null;
  const none = { tried_bytes: null, total_bytes: null, free_bytes: null, allocated_bytes: null, reserved_bytes: null };
  return { ...none, gpu: null, ...expected.fields } as Diagnosis['fields'];
}
