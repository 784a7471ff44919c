import { readJson } from '../../contract/fields.js';
import { ENDED_STATES, type JobState } from '../../contract/job.js';
import { probeRecord } from '../../contract/measurement.js';
import { hostName, type Store, type StreamEvent } from '../../store/index.js';
import type { Metrics } from './metrics.js';

interface Times {
  queued: number | null;
  searching: number | null;
  running: boolean;
  host: string | null;
}

const JOBS_KEPT = 20_000;
const probed = probeRecord.pick({ outcome: true });

/** Counts events of this host's jobs only, so that sums over hosts are right. */
export class EventMetrics {
  readonly #jobs = new Map<string, Times>();
  readonly #here = hostName();

  constructor(
    private readonly store: Store,
    private readonly metrics: Metrics,
  ) {}

  hear({ type, at, fields }: StreamEvent): void {
    const { job = '' } = fields;
    if (type === 'job') this.#state(job, fields.state as JobState, at);
    else if (type === 'probe') this.#probe(job, fields.probe ?? '');
    else if (type === 'config' && fields.status === 'demoted') this.#ours(job, () => this.metrics.demoted.inc());
  }

  #state(job: string, state: JobState, at: number): void {
    const times = this.#times(job);
    const { queued, searching, running } = times;
    if (state === 'queued') {
      this.#jobs.set(job, { queued: at, searching: null, running: false, host: null });
      return;
    }
    const begins = (state === 'searching' || state === 'running') && searching === null && !running;
    if (begins) {
      this.#ours(job, async () => {
        const since = queued ?? (await this.#submitted(job));
        if (since !== null) this.metrics.wait.observe(Math.max(0, at - since) / 1000);
      });
    }
    if (state === 'searching') times.searching = at;
    const answered = searching !== null && !running && state !== 'searching' && state !== 'held';
    if (answered) {
      const result = state === 'running' || state === 'succeeded' ? 'found' : state;
      this.#ours(job, () => this.metrics.search.observe({ result }, Math.max(0, at - searching) / 1000));
    }
    if (state === 'running') times.running = true;
    if (!ENDED_STATES.includes(state)) return;
    this.#ours(job, async () => {
      this.#jobs.delete(job);
      this.metrics.ended.inc({ state });
      if (state !== 'failed' && state !== 'exhausted') return;
      const { failure } = (await this.store.jobs.get(job)) ?? {};
      if (failure) this.metrics.failures.inc({ class: failure.class });
    });
  }

  #probe(job: string, text: string): void {
    const probe = readJson(probed, text); // a label must not take any value
    if (probe !== null) this.#ours(job, () => this.metrics.probes.inc(probe));
  }

  #ours(job: string, count: () => void | Promise<void>): void {
    this.#hostOf(job)
      .then((host) => (host === this.#here ? count() : undefined))
      .catch(() => {}); // Redis went away: one that is not counted
  }

  async #hostOf(job: string): Promise<string | null> {
    const times = this.#times(job);
    times.host ??= await this.store.jobs.word(job, 'host');
    return times.host;
  }

  async #submitted(job: string): Promise<number | null> {
    const at = Date.parse((await this.store.jobs.word(job, 'submitted_at')) ?? '');
    return Number.isNaN(at) ? null : at;
  }

  #times(job: string): Times {
    const known = this.#jobs.get(job);
    if (known !== undefined) return known;
    const times: Times = { queued: null, searching: null, running: false, host: null };
    this.#jobs.set(job, times);
    const [oldest] = this.#jobs.keys();
    if (this.#jobs.size > JOBS_KEPT && oldest !== undefined) this.#jobs.delete(oldest);
    return times;
  }
}
