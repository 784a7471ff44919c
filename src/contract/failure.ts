import { z } from 'zod';
import { text } from './fields.js';

export const FAILURE_CLASSES = [
  'device_oom',
  'host_oom',
  'shm',
  'disk_full',
  'network',
  'device_fault',
  'user_error',
  'timeout',
  'killed',
  'cancelled',
] as const;

const failureClass = z.enum(FAILURE_CLASSES);
export type FailureClass = z.infer<typeof failureClass>;

export const outcome = z.union([z.literal('fit'), failureClass]);

/** `load`: before the first step. */
export const phase = z.enum(['load', 'train', 'eval', 'save', 'unknown']);

export const failure = z.object({
  class: failureClass,
  /** The line that proves it. */
  evidence: text(65_536).nullable(),
  fields: z.record(z.string(), z.union([z.number(), z.string(), z.null()])),
});

/** The error document of verbs with `--json`, and of the dashboard. */
export const errorDocument = z.object({
  schema: z.literal(1),
  error: z.object({ code: z.string().regex(/^OOMTUNE_[A-Z_]+$/), message: z.string(), remedy: z.string() }),
});
export type ErrorDocument = z.infer<typeof errorDocument>;
