import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { OomtuneError } from '../common/errors.js';
import { homePath } from '../common/home.js';
import { answersTo } from '../common/names.js';
import { processLives } from '../common/process.js';
import { namesIn, readText } from '../common/regular-file.js';
import { ENDED_STATES, foregroundRecord, type JobRecord } from '../contract/job.js';
import { plainOutcome } from '../daemon/outcome.js';
import { readExit } from '../runtime/records.js';
import { isJobId } from '../store/job-id.js';
import { hostName } from '../store/process-identity.js';

/** Where the record of a command in the foreground lies, beside its launches. */
export const recordPath = (job: string): string => join(homePath(), 'runs', job, 'job.json');

/** The latest `run` or `find-batch` in the foreground of this id or name (`@`: of all); null: there is none whose record is left. Throws OOMTUNE_RECORD_UNREADABLE for an id whose record is damaged. */
export function foregroundJob(handle: string): JobRecord | null {
  const found = namesIn(join(homePath(), 'runs'))
    .map(readForeground)
    .filter((job) => job !== null)
    .filter(({ job, name }) => handle === '@' || job === handle || name === handle || answersTo(name, handle));
  const path = recordPath(handle);
  if (found.length === 0 && isJobId(handle) && existsSync(path)) {
    throw new OomtuneError(
      'OOMTUNE_RECORD_UNREADABLE',
      `The record of ${handle} cannot be read: ${path} is damaged, or a newer oomtune wrote it.`,
      'Use the version that wrote it; what its launches printed lies in the folders beside it.',
    );
  }
  return found.toSorted((a, b) => (a.submitted_at < b.submitted_at ? 1 : -1))[0] ?? null;
}

/** The one of this id as it stands now. Null: a job of the queue, or a record that this version cannot read. */
export function readForeground(job: string): JobRecord | null {
  const text = readText(recordPath(job));
  if (text === null) return null;
  const parsed = foregroundRecord.safeParse(orNull(text));
  if (!parsed.success) return null;
  const { process: by, job: record } = parsed.data;
  const gone = record.host === hostName() && !processLives(by.pid, by.start_time);
  if (ENDED_STATES.includes(record.state) || !gone) return record;
  return { ...record, ...endAlone(record) };
}

/** How a job ended whose oomtune was killed: what it had started is ended with it, unless it was over by itself. */
function endAlone({ launches }: JobRecord): Partial<JobRecord> {
  const last = launches.at(-1);
  const exit = last === undefined ? null : readExit(last.dir);
  const output = last === undefined ? '' : ` What it printed is in ${join(last.dir, 'log')}.`;
  if (exit !== null && exit.ended_by === 'job' && last?.purpose === 'run') {
    const reason = `oomtune itself was killed, or its machine went down, before it had recorded that.${output}`;
    return { ...plainOutcome({ ...exit, ledger: null }), ended_at: exit.ended_at, reason };
  }
  const how =
    exit !== null
      ? ', and what it had launched was ended with it'
      : last !== undefined
        ? '; what it had launched ends with it, and has not left a record of its end'
        : '';
  const reason = `oomtune itself was killed, or its machine went down${how}.${output}`;
  return { state: 'failed', ended_at: exit?.ended_at ?? null, reason };
}

function orNull(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
