import { readJson, text } from '../../contract/fields.js';
import { lifeOf, type ProbeRecord, probeRecord } from '../../contract/measurement.js';
import { type RungLike, rungName, shownRung } from '../../contract/rung.js';
import type { StreamEvent } from '../../store/index.js';

const asked = probeRecord.pick({ launch: true, life: true, micro_batch: true }).extend(shownRung.shape);
type Asked = RungLike & Pick<ProbeRecord, 'launch' | 'life' | 'micro_batch'>;
const answered = asked.extend({ why: text(4096) });

const JOBS_KEPT = 500;
const PROBES_KEPT = 1000;

/** The reason of each probe, which only events tell: journals keep the outcomes. */
export class Reasons {
  readonly #jobs = new Map<string, Map<string, string>>();

  hear(event: StreamEvent): void {
    if (event.type !== 'probe') return;
    const job = event.fields.job ?? '';
    const probe = readJson(answered, event.fields.probe);
    if (probe === null) return;
    const known = this.#jobs.get(job) ?? new Map<string, string>();
    this.#jobs.set(job, known);
    if (known.size < PROBES_KEPT) known.set(nameOf(probe), probe.why);
    const [oldest] = this.#jobs.keys();
    if (this.#jobs.size > JOBS_KEPT && oldest !== undefined) this.#jobs.delete(oldest);
  }

  of(job: string, asked: Asked): string | null {
    return this.#jobs.get(job)?.get(nameOf(asked)) ?? null;
  }
}

const nameOf = (probe: Asked): string => `${lifeOf(probe)} ${probe.micro_batch} ${rungName(probe)}`;
