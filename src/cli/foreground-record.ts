import { existsSync } from 'node:fs';
import { dirname } from 'node:path';
import { writeWhole } from '../common/durable-file.js';
import { homePath } from '../common/home.js';
import { readStat } from '../common/process.js';
import { refusal } from '../common/refusal.js';
import { ownUser } from '../common/user.js';
import { type JobRecord, withNote } from '../contract/job.js';
import { envNames } from '../contract/options.js';
import type { FindBatchReport, RunReport } from '../contract/reports.js';
import { configOf } from '../contract/rung.js';
import { failureOf, outcomeOf } from '../daemon/outcome.js';
import { notBegun } from '../daemon/submit.js';
import type { Progress, WorkRequest } from '../worker/types.js';
import type { Context } from './context.js';
import { recordPath } from './foreground-jobs.js';

/** What `explain` tells of a command in the foreground, in the folder of its launches and as long as that: from its first launch on. */
export class ForegroundRecord {
  readonly #record: JobRecord;
  #told = false;
  readonly #process = { pid: process.pid, start_time: readStat(process.pid)?.startTime ?? -1 };

  constructor(
    { jobId: job, command, options }: Pick<WorkRequest, 'jobId' | 'command' | 'options'>,
    { name, host }: { name: string; host: string },
    private readonly context: Pick<Context, 'interruptedBy' | 'progress'>,
    /** Where a scheduler's job keeps it as well; null: nowhere. */
    private readonly beside: string | null = null,
  ) {
    const owner = ownUser();
    const recorded = { ...options, env: envNames(options.env) };
    this.#record = { ...notBegun(), schema: 1, job, name, owner, reason: null, command, options: recorded, host };
  }

  see(event: Progress): void {
    const record = this.#record;
    if (event.type === 'note') record.notes = [...withNote(record.notes ?? [], event.text)];
    if (event.type === 'device') record.devices = [event.device.id];
    if (event.type === 'lasts') record.config = event.config;
    if (event.type !== 'launch' && event.type !== 'running') return;
    record.started_at ??= new Date().toISOString();
    record.state = event.type === 'running' ? 'running' : 'searching';
  }

  async persist(patch: Partial<JobRecord>): Promise<void> {
    Object.assign(this.#record, patch);
    this.#write();
  }

  /** Does the work, and records how it ended. */
  async around<R extends RunReport | FindBatchReport>(work: () => Promise<R>): Promise<R> {
    try {
      const report = await work();
      this.#end('outcome' in report ? outcomeOf(report) : endOfSearch(report));
      return report;
    } catch (error) {
      this.#end(this.context.interruptedBy === null ? failureOf(error) : { state: 'cancelled', failure: null });
      throw error;
    }
  }

  #end(end: Partial<JobRecord>): void {
    const interrupted = this.context.interruptedBy !== null;
    Object.assign(this.#record, end, interrupted ? { state: 'cancelled' } : {}, { ended_at: new Date().toISOString() });
    this.#write();
  }

  #write(): void {
    const path = recordPath(this.#record.job);
    if (!existsSync(dirname(path))) return; // nothing was launched
    const text = JSON.stringify({ process: this.#process, job: this.#record });
    try {
      writeWhole(path, text);
      if (this.beside !== null) writeWhole(this.beside, text);
    } catch (error) {
      this.#tell(error);
    }
  }

  /** The job goes on where its disk is full: it is `explain` alone that misses the record. */
  #tell(error: unknown): void {
    const known = refusal(error, homePath());
    if (known === null) throw error;
    const text = `What \`oomtune explain\` tells of it could not be recorded: ${known.message} ${known.remedy}`;
    if (!this.#told) this.context.progress.show({ type: 'note', text });
    this.#told = true;
  }
}

/** The record's fields after a search. */
function endOfSearch({ status, failure, config, key }: FindBatchReport): Partial<JobRecord> {
  const { class: kind, evidence, fields, advice, cause, reason } = failure ?? {};
  return {
    state: status === 'found' ? 'succeeded' : status,
    key,
    config: config && configOf(config, config),
    failure:
      kind === undefined
        ? null
        : {
            class: kind,
            evidence: evidence ?? null,
            fields: { ...fields, cause: cause ?? null, advice: advice ?? null, reason: reason ?? null },
          },
  };
}
