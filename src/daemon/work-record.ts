import type { Log } from '../common/log.js';
import type { JobRecord } from '../contract/job.js';
import { retry, type Store } from '../store/index.js';
import type { Progress, Records } from '../worker/index.js';
import type { ClaimedRecord } from './claimed-record.js';
import type { Hands } from './hands.js';

/** Writes down what the worker tells of a job: its steps in the record, its log's end, its probes as events. */
export class WorkRecord {
  /** Some daemon launched something of it. */
  launched: boolean;
  #tail: ReturnType<Hands['tailOf']> = null;
  #tailed = false;

  constructor(
    private readonly claimed: ClaimedRecord,
    private readonly store: Store,
    private readonly log: Log,
    private readonly hands: Pick<Hands, 'tailOf'>,
  ) {
    this.launched = claimed.job.launches.length > 0;
  }

  async close(): Promise<void> {
    await this.#tail?.close();
  }

  async persist(patch: Partial<JobRecord>): Promise<void> {
    const { job } = this.claimed;
    const more: Partial<JobRecord> = { ...patch };
    if (patch.launches !== undefined && patch.launches.length > 0) {
      this.launched = true;
      if (job.started_at === null) {
        job.started_at = new Date().toISOString();
        more.started_at = job.started_at;
      }
    }
    await this.claimed.patch(more);
    const last = (patch.launches ?? job.launches).at(-1);
    if (patch.launches !== undefined) job.launches = [...patch.launches]; // the worker goes on adding to its own
    if (last === undefined || (patch.launches === undefined && this.#tailed)) return;
    await this.close();
    this.#tailed = true;
    this.#tail = this.hands.tailOf({ job: job.job, ...last }, patch.launches === undefined);
  }

  /** The configuration that this job found, or did not need, now serves all of its sweep. */
  async #settleSweep(): Promise<void> {
    const { sweep } = this.claimed.job.options;
    if (sweep === undefined) return;
    await this.store.sweeps
      .settle(sweep.sweep)
      .catch((err: unknown) => this.log.warn({ err }, 'the other jobs of the sweep wait for the end of this one'));
  }

  show(event: Progress): void {
    if (event.type === 'waiting') this.claimed.say(event.reason);
    else if (event.type === 'life') this.claimed.say(`launch ${event.launch}, life ${event.life}: ${event.why}`);
    else if (event.type === 'launch') this.claimed.say(`launch ${event.launch}: ${event.why}`);
    else if (event.type === 'probing')
      this.claimed.say(`trying micro-batch ${event.probe.micro_batch} (launch ${event.launch})`);
    else if (event.type === 'running') {
      this.claimed.say(null);
      if (!event.watched) void this.#settleSweep();
    } else if (event.type === 'probe' || event.type === 'lasts') {
      if (event.type === 'lasts') void this.#settleSweep();
      const { job, key } = this.claimed.job;
      if (event.record === null) return;
      this.store.events.add({ type: 'probe', job, key, probe: event.record }).catch(() => {});
    } else if (event.type === 'note') {
      this.log.info({ note: event.text }, 'note');
      this.claimed.note(event.text);
    }
  }

  /** The store's recommendations; retries what Redis refuses, as no job should end for it. */
  recommendations(signal: AbortSignal): Records['recommendations'] {
    const { recommendations, connection } = this.store;
    const withstand = <T>(task: () => Promise<T>): Promise<T> =>
      retry(task, { signal, onRefused: connection.onRefused });
    return {
      get: (key) => withstand(() => recommendations.get(key)),
      put: (recommendation, job) => withstand(() => recommendations.put(recommendation, job)),
      demote: (key, knownBad, job) => withstand(() => recommendations.demote(key, knownBad, job)),
    };
  }
}
