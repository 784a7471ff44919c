import { setTimeout as delay } from 'node:timers/promises';
import type { z } from 'zod';
import type { Log } from '../../common/log.js';
import { failure } from '../../contract/failure.js';
import type { LiveFigures, Row } from '../../contract/http.js';
import { jobFacts } from '../../contract/job.js';
import { jobOptions } from '../../contract/options.js';
import { config } from '../../contract/rung.js';
import { type Store, type StoredJob, shortWait } from '../../store/index.js';
import { withSilence } from '../silence.js';
import type { JobFigures } from './job-figures.js';

const rowRecord = jobFacts.extend({
  failure: failure.pick({ class: true, evidence: true }).nullable(),
  config: config.pick({ micro_batch: true, accumulation: true, effective_batch: true }).nullable(),
  options: jobOptions.pick({ priority: true, name: true }),
});

/** The fields to read, in this order, without command and journal, which may be long. */
const ROW_FIELDS = [...Object.keys(rowRecord.shape), 'cancel', 'slurm'];

/** Fields that are words, and no JSON. */
const RAW = new Set(['state', 'cancel']);

const REASON_LENGTH = 500;

type RecordRow = z.infer<typeof rowRecord> & Pick<StoredJob, 'cancelAsked' | 'slurm'>;

/** Null: the record is gone or unreadable. */
function readRow(job: string, values: (string | null)[]): RecordRow | null {
  const record: Record<string, unknown> = {};
  try {
    for (const [at, name] of ROW_FIELDS.entries()) {
      const value = values[at] ?? null;
      record[name] = value === null || RAW.has(name) ? value : JSON.parse(value);
    }
  } catch {
    return null;
  }
  const parsed = rowRecord.safeParse(record);
  if (!parsed.success) return null;
  const { cancel, slurm } = record as { cancel: string | null; slurm: RecordRow['slurm'] };
  return { ...parsed.data, job, cancelAsked: cancel, slurm };
}

function shown(record: RecordRow, figures: LiveFigures): Row {
  const { failure, config, options, reason, cancelAsked, slurm: _, ...rest } = record;
  return {
    ...rest,
    ...figures,
    cancelling: cancelAsked !== null && rest.ended_at === null,
    reason: cut(reason),
    summary: reason === null ? null : cut(shortWait(reason)),
    failure: failure?.class ?? null,
    evidence: cut(failure?.evidence ?? null),
    micro_batch: config?.micro_batch ?? null,
    accumulation: config?.accumulation ?? null,
    priority: options.priority,
  };
}

const cut = (text: string | null): string | null => (text === null ? null : text.slice(0, REASON_LENGTH));

export interface RowChange {
  rows: Row[];
  gone: string[];
}

/** Ended jobs that are shown. */
const ENDED_SHOWN = 1000;
const LIVE_SHOWN = 5000;
const GATHER_MS = 120;
const LOOK_MS = 1000;
const LOOK_AT_MANY_MS = 4000;
const MANY = 300;

/** All jobs as lists show them, while somebody looks: events name the job that changed; reasons are read every second. */
export class JobRows {
  readonly #listeners = new Set<(change: RowChange) => void>();
  #rows = new Map<string, { row: Row; text: string }>();
  #dirty = new Set<string>();
  #wake: AbortController | null = null;
  #loading: Promise<void> | null = null;

  constructor(
    private readonly store: Store,
    private readonly log: Log,
    private readonly figures: JobFigures,
  ) {}

  /** Returns all rows, and calls back for each change until `stop`. */
  async watch(listener: (change: RowChange) => void): Promise<{ rows: Row[]; stop: () => void }> {
    this.#listeners.add(listener);
    const stop = (): void => {
      this.#listeners.delete(listener);
      if (this.#listeners.size === 0) this.#wake?.abort();
    };
    try {
      this.#loading ??= this.#begin();
      await this.#loading;
    } catch (error) {
      this.#loading = null;
      stop();
      throw error;
    }
    return { rows: [...this.#rows.values()].map(({ row }) => row), stop };
  }

  /** An event named this job. */
  changed(job: string): void {
    if (this.#loading === null) return;
    this.#dirty.add(job);
    this.#wake?.abort();
  }

  async #begin(): Promise<void> {
    this.#rows = new Map();
    await this.#refresh(await this.store.jobs.latestIds({ live: LIVE_SHOWN, ended: ENDED_SHOWN }));
    void this.#run();
  }

  async #run(): Promise<void> {
    let looked = Date.now();
    while (this.#listeners.size > 0) {
      const wait = this.#rows.size > MANY ? LOOK_AT_MANY_MS : LOOK_MS;
      this.#wake = new AbortController();
      if (this.#dirty.size === 0) await delay(wait, undefined, { signal: this.#wake.signal }).catch(() => {});
      if (this.#listeners.size === 0) break;
      await delay(GATHER_MS); // events come in groups
      const due = Date.now() - looked >= wait;
      const ids = this.#dirty;
      this.#dirty = new Set();
      try {
        if (due) {
          looked = Date.now();
          for (const id of await this.store.jobs.liveIds()) ids.add(id);
          for (const { row } of this.#rows.values()) if (row.ended_at === null) ids.add(row.job);
        }
        const change = await this.#refresh([...ids]);
        if (change.rows.length + change.gone.length > 0) for (const listener of this.#listeners) listener(change);
      } catch (error) {
        this.log.debug({ err: error }, 'jobs could not be read');
      }
    }
    this.#loading = null;
    this.#rows = new Map();
  }

  async #refresh(ids: string[]): Promise<RowChange> {
    const change: RowChange = { rows: [], gone: [] };
    const read = (await this.store.jobs.fields(ids, ROW_FIELDS)).map((values, at) =>
      values === null ? null : readRow(ids[at] as string, values),
    );
    const standing = await withSilence(
      this.store,
      read.filter((one) => one !== null),
    );
    const byId = new Map(standing.map((one) => [one.job, one]));
    const records = read.map((one) => one && (byId.get(one.job) ?? one));
    const figures = await Promise.all(records.map((record) => record && this.figures.of(record)));
    for (const [at, record] of records.entries())
      this.#take(ids[at] as string, record && shown(record, figures[at] as LiveFigures), change);
    return change;
  }

  #take(id: string, row: Row | null, change: RowChange): void {
    if (row === null) {
      if (this.#rows.delete(id)) change.gone.push(id);
      return;
    }
    const text = JSON.stringify(row);
    if (this.#rows.get(id)?.text === text) return;
    this.#rows.set(id, { row, text });
    change.rows.push(row);
  }
}
