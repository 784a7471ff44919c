import { z } from 'zod';
import { failure } from './failure.js';
import { time, whole } from './fields.js';
import { jobState } from './job.js';
import { shownConfig } from './rung.js';

/** What `--notify` tells: on the command's stdin and in OOMTUNE_EVENT_JSON, or as the body of a POST. Later versions may add fields. */
export const notification = z.object({
  schema: z.literal(1),
  /** `ended`: nothing more will happen. `stepped_down`: after running out of memory it was started again smaller. `waiting`: for long. */
  event: z.enum(['ended', 'stepped_down', 'waiting']),
  /** One sentence for a person; chat programs show it. */
  text: z.string(),
  job: z.string(),
  name: z.string(),
  owner: z.string().nullable(),
  state: jobState,
  reason: z.string().nullable(),
  host: z.string().nullable(),
  devices: z.array(z.string()),
  config: shownConfig.nullable(),
  failure: failure.pick({ class: true, evidence: true }).nullable(),
  exit_code: z.number().int().nullable(),
  submitted_at: time,
  started_at: time.nullable(),
  ended_at: time.nullable(),
});
export type Notification = z.infer<typeof notification>;

/** What was already told of a job, in `{oomtune}:notify`. */
export const notifyMarks = z.object({
  /** That it waits for long. */
  waited: z.boolean().default(false),
  /** How many of its runs were looked at for a step down. */
  runs: whole.default(0),
});
export type NotifyMarks = z.infer<typeof notifyMarks>;
