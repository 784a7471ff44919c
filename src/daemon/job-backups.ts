import { readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { writeWhole } from '../common/durable-file.js';
import { stateFolder } from '../common/home.js';
import type { Log } from '../common/log.js';
import { jobRecord } from '../contract/job.js';
import type { Store } from '../store/index.js';

const schema = z.object({
  schema: z.literal(1),
  /** Which Redis: a home may serve several. */
  store: z.string(),
  host: z.string(),
  claim: z.string(),
  epoch: z.number().int().min(1),
  record: jobRecord,
});

/** A claimed job with its record as written last. */
type BackedUpJob = Omit<z.infer<typeof schema>, 'schema' | 'store'>;

/** As many as `config/retention.yaml` keeps folders of jobs. */
const KEPT_ENDS = 2000;

/**
 * Copies of the records that the daemon answers for (`daemon/held/<job>.json`), written after Redis took a step and before
 * it is made: Redis may lose its data. Ended jobs keep one (`daemon/ended/<job>.json`), so that an older state of Redis runs
 * none again.
 */
export class JobBackups {
  readonly #store: string;
  readonly #folder: string;

  constructor(
    { url, keys }: Pick<Store, 'url' | 'keys'>,
    private readonly log: Log,
    what: 'held' | 'ended' = 'held',
  ) {
    this.#store = `${url} ${keys.prefix}`;
    this.#folder = stateFolder('daemon', what);
  }

  write(job: BackedUpJob): void {
    const path = this.#path(job.record.job);
    try {
      writeWhole(path, JSON.stringify({ schema: 1, store: this.#store, ...job }));
    } catch (error) {
      // The job goes on; it only cannot be restored if Redis loses its data before the next step
      this.log.warn({ err: error, job: job.record.job }, 'what the daemon holds could not be written to its home');
    }
  }

  remove(job: string): void {
    rmSync(this.#path(job), { force: true });
  }

  /** Of this Redis; null: none, or unreadable. */
  get(job: string): BackedUpJob | null {
    return this.#read(this.#path(job));
  }

  ids(): string[] {
    return readdirSync(this.#folder)
      .filter((name) => name.endsWith('.json'))
      .map((name) => name.slice(0, -'.json'.length));
  }

  /** Of this Redis. `host` null: of every host that shares this home. */
  list(host: string | null): BackedUpJob[] {
    return this.ids()
      .flatMap((job) => this.get(job) ?? [])
      .filter((job) => host === null || job.host === host);
  }

  prune(keep = KEPT_ENDS): void {
    const ids = this.ids();
    if (ids.length <= keep) return;
    const changed = (job: string) => statSync(this.#path(job), { throwIfNoEntry: false })?.mtimeMs ?? 0;
    const byAge = ids.map((job) => ({ job, at: changed(job) })).sort((a, b) => b.at - a.at);
    for (const { job } of byAge.slice(keep)) this.remove(job);
  }

  #path(job: string): string {
    return join(this.#folder, `${job}.json`);
  }

  #read(path: string): BackedUpJob | null {
    try {
      const { store, host, claim, epoch, record } = schema.parse(JSON.parse(readFileSync(path, 'utf8')));
      return store === this.#store ? { host, claim, epoch, record } : null;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
      this.log.warn({ err: error, path }, 'a file of what the daemon holds cannot be read');
      return null;
    }
  }
}
