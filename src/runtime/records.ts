import { renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { readRegular } from '../common/regular-file.js';
import type { Exit } from './types.js';

const count = z.number().int().nonnegative();
const pid = z.number().int().positive();

/** Of a record: the job can write into its launch folder. */
const MOST_BYTES = 64 * 1024;

/** supervisor.json: who owns the launch. */
const supervisorRecord = z.object({
  schema: z.literal(1),
  pid,
  start_time: count,
  job_pid: pid.nullable(),
  job_start_time: count.nullable(),
  /** Folder of the launch's own cgroup, where one could be made. */
  cgroup: z.string().startsWith('/sys/fs/cgroup/').nullable().default(null),
  boot_id: z.string(),
  started_at: z.string(),
  version: z.string(),
});

/** exit.json: how it ended. */
const exitRecord = z.object({
  schema: z.literal(1),
  code: z.number().int().min(0).max(255).nullable(),
  signal: z.string().nullable(),
  ended_by: z.enum(['job', 'timeout', 'cancel', 'start-failed', 'supervisor-lost']),
  error: z.string().nullable(),
  host_oom: z.boolean().nullable(),
  started_at: z.string(),
  ended_at: z.string(),
  stragglers: count,
});

export type SupervisorRecord = z.infer<typeof supervisorRecord>;

function readRecord<S extends z.ZodType>(file: string, schema: S): z.infer<S> | null {
  let text: string;
  try {
    text = readRegular(file, MOST_BYTES);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
  if (text === '') return null; // a power cut right after the rename
  return schema.parse(JSON.parse(text));
}

export const readSupervisor = (dir: string) => readRecord(join(dir, 'supervisor.json'), supervisorRecord);

/** Null while the launch is under way. */
export function readExit(dir: string): Omit<Exit, 'ledger'> | null {
  const record = readRecord(join(dir, 'exit.json'), exitRecord);
  if (!record) return null;
  const { schema: _, ...exit } = record;
  return exit;
}

/** For a launch whose supervisor is gone: whole or not at all, as the supervisor would have written it. */
export function writeExit(dir: string, exit: Omit<Exit, 'ledger'>): void {
  const side = join(dir, `exit.json.${process.pid}.tmp`);
  writeFileSync(side, `${JSON.stringify({ schema: 1, ...exit })}\n`, { mode: 0o600, flush: true });
  renameSync(side, join(dir, 'exit.json'));
}
