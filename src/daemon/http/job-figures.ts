import { readJson } from '../../contract/fields.js';
import type { LiveFigures } from '../../contract/http.js';
import type { JobState } from '../../contract/job.js';
import { jobOptions } from '../../contract/options.js';
import type { Store } from '../../store/index.js';
import type { Sampler } from '../observe/sampler.js';
import type { JobSteps } from '../sharing/pace.js';

interface Parts {
  store: Store;
  sampler: Sampler;
  steps: (job: string) => JobSteps | null;
}

/** What of a record the figures are of. */
export interface FiguresOf {
  job: string;
  name: string;
  state: JobState;
  options: { name: string | null };
  config: { effective_batch: number } | null;
}

const NONE: LiveFigures = {
  step: null,
  samples_per_s: null,
  memory_bytes: null,
  budget_bytes: null,
  expected_s: null,
};

const EXPECTED_FRESH_MS = 60_000;
const TRACE_FRESH_MS = 5_000;
const QUEUE_FRESH_MS = 2_000;
const prioritized = jobOptions.pick({ priority: true });
/** Names and jobs of which something is kept. */
const MOST_KEPT = 2000;

/** What a job does while it works: how far it is, how fast, and in how much memory. Null: nobody tells. */
export class JobFigures {
  readonly #expected = new Fresh<number | null>(EXPECTED_FRESH_MS);
  readonly #queue = new Fresh<string[]>(QUEUE_FRESH_MS);
  readonly #traces = new Fresh<Pick<LiveFigures, 'memory_bytes' | 'budget_bytes'>>(TRACE_FRESH_MS);

  constructor(private readonly parts: Parts) {}

  async of(job: FiguresOf): Promise<LiveFigures> {
    if (job.state !== 'running' && job.state !== 'searching') return NONE;
    const [memory, expected] = await Promise.all([this.#memory(job.job), this.#lasts(job)]);
    const steps = job.state === 'running' ? this.parts.steps(job.job) : null;
    const rate = steps?.steps_per_s ?? null;
    return {
      ...memory,
      step: steps?.step ?? null,
      samples_per_s: rate === null || job.config === null ? null : rate * job.config.effective_batch,
      expected_s: job.state === 'running' ? expected : null,
    };
  }

  /** Its place among those that are queued, from 1 on: by priority, and among equals by when they were submitted. Null: it is none of them. */
  async position({ job }: Pick<FiguresOf, 'job'>): Promise<number | null> {
    const order = await this.#queue.get('queue', () => this.#inOrder());
    const at = order.indexOf(job);
    return at < 0 ? null : at + 1;
  }

  async #inOrder(): Promise<string[]> {
    const { jobs } = this.parts.store;
    const since = await jobs.liveSince();
    const ids = [...since.keys()];
    const records = await jobs.fields(ids, ['state', 'options']);
    const queued = ids.flatMap((job, at) => {
      const [state, options] = records[at] ?? [];
      const priority = readJson(prioritized, options)?.priority ?? 0;
      return state === 'queued' ? [{ job, priority, since: since.get(job) ?? 0 }] : [];
    });
    return queued.sort((a, b) => b.priority - a.priority || a.since - b.since).map(({ job }) => job);
  }

  /** Seconds that the like of it took from its first launch on. */
  #lasts({ name, options }: FiguresOf): Promise<number | null> {
    const { durations } = this.parts.store;
    const like = { name, options, started_at: null } as Parameters<typeof durations.expected>[0];
    return this.#expected.get(options.name ?? name, () => durations.expected(like));
  }

  async #memory(job: string): Promise<Pick<LiveFigures, 'memory_bytes' | 'budget_bytes'>> {
    const { sampler, store } = this.parts;
    const here = sampler.history(job);
    if (here !== null) return { memory_bytes: here.samples.at(-1)?.bytes ?? null, budget_bytes: here.budget_bytes };
    // On another host, whose daemon writes it down now and then
    return this.#traces.get(job, async () => {
      const trace = await store.memory.get(job);
      return { memory_bytes: trace?.samples.at(-1)?.bytes ?? null, budget_bytes: trace?.budget_bytes ?? null };
    });
  }
}

/** Answers, each asked for anew when it is this old. */
class Fresh<T> {
  readonly #known = new Map<string, { at: number; answer: Promise<T> }>();

  constructor(private readonly ms: number) {}

  get(key: string, ask: () => Promise<T>): Promise<T> {
    const known = this.#known.get(key);
    if (known !== undefined && Date.now() - known.at < this.ms) return known.answer;
    const answer = ask();
    answer.catch(() => this.#known.delete(key));
    this.#known.delete(key);
    this.#known.set(key, { at: Date.now(), answer });
    const [oldest] = this.#known.keys();
    if (this.#known.size > MOST_KEPT && oldest !== undefined) this.#known.delete(oldest);
    return answer;
  }
}
