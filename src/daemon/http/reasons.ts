import { z } from 'zod';
import type { Told } from '../observe/follower.js';

interface Asked {
  launch: number;
  micro_batch: number;
  amp: string;
  checkpointing: boolean;
  offload?: boolean | undefined;
}

const schema = z.object({
  launch: z.number(),
  micro_batch: z.number(),
  amp: z.string(),
  checkpointing: z.boolean(),
  offload: z.boolean().optional(),
  why: z.string().max(4096),
});

const JOBS_KEPT = 500;
const PROBES_KEPT = 1000;

/** Why each size was tried: told by events only, as a job's journal keeps what came of it. */
export class Reasons {
  readonly #jobs = new Map<string, Map<string, string>>();

  hear(event: Told): void {
    if (event.type !== 'probe') return;
    const job = event.fields.job ?? '';
    let probe: z.infer<typeof schema>;
    try {
      probe = schema.parse(JSON.parse(event.fields.probe ?? ''));
    } catch {
      return;
    }
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

const nameOf = ({ launch, micro_batch, amp, checkpointing, offload = false }: Asked): string =>
  `${launch} ${micro_batch} ${amp} ${checkpointing} ${offload}`;
