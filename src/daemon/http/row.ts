import { z } from 'zod';
import type { JobState } from '../../store/types.js';

/** One job as a list shows it. */
export interface Row {
  job: string;
  name: string;
  state: JobState;
  reason: string | null;
  /** Class of its failure. */
  failure: string | null;
  host: string | null;
  devices: string[];
  micro_batch: number | null;
  accumulation: number | null;
  priority: number;
  submitted_at: string;
  started_at: string | null;
  ended_at: string | null;
  exit_code: number | null;
  /** It has been asked to end. */
  cancelling: boolean;
}

/** What is read of a record, in this order: not its command and journal, which may be long. */
export const ROW_FIELDS = [
  'state',
  'name',
  'reason',
  'failure',
  'host',
  'devices',
  'config',
  'options',
  'submitted_at',
  'started_at',
  'ended_at',
  'exit_code',
  'cancel',
] as const;

const text = z.string().max(65_536);
const schema = z.object({
  state: z.enum(['queued', 'held', 'searching', 'running', 'succeeded', 'failed', 'cancelled', 'exhausted', 'timeout']),
  name: text,
  reason: text.nullable(),
  failure: z.object({ class: text }).nullable(),
  host: text.nullable(),
  devices: z.array(text).max(1024),
  config: z.object({ micro_batch: z.number(), accumulation: z.number() }).nullable(),
  options: z.object({ priority: z.number() }),
  submitted_at: text,
  started_at: text.nullable(),
  ended_at: text.nullable(),
  exit_code: z.number().nullable(),
});

const REASON_LENGTH = 500;

/** Null for a record that is gone or cannot be read. */
export function readRow(job: string, values: (string | null)[]): Row | null {
  const record: Record<string, unknown> = {};
  try {
    for (const [at, name] of ROW_FIELDS.entries()) {
      const value = values[at] ?? null;
      record[name] = value === null || name === 'state' || name === 'cancel' ? value : JSON.parse(value);
    }
  } catch {
    return null;
  }
  const parsed = schema.safeParse(record);
  if (!parsed.success) return null;
  const { failure, config, options, reason, ...rest } = parsed.data;
  return {
    job,
    ...rest,
    reason: reason === null ? null : reason.slice(0, REASON_LENGTH),
    failure: failure?.class ?? null,
    micro_batch: config?.micro_batch ?? null,
    accumulation: config?.accumulation ?? null,
    priority: options.priority,
    cancelling: record.cancel !== null && rest.ended_at === null,
  };
}
