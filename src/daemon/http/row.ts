import { failure } from '../../contract/failure.js';
import type { Row } from '../../contract/http.js';
import { jobRecord } from '../../contract/job.js';
import { jobOptions } from '../../contract/options.js';
import { config } from '../../contract/rung.js';
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

const rowRecord = jobRecord
  .pick({
    state: true,
    name: true,
    reason: true,
    host: true,
    devices: true,
    submitted_at: true,
    started_at: true,
    ended_at: true,
    exit_code: true,
  })
  .extend({
    failure: failure.pick({ class: true }).nullable(),
    config: config.pick({ micro_batch: true, accumulation: true }).nullable(),
    options: jobOptions.pick({ priority: true }),
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
  const parsed = rowRecord.safeParse(record);
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
