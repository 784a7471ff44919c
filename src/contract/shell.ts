import { z } from 'zod';
import { whole } from './fields.js';

export const LIMITS = [
  ...(['as', 'core', 'cpu', 'data', 'fsize', 'locks', 'memlock', 'msgqueue'] as const),
  ...(['nice', 'nofile', 'nproc', 'rss', 'rtprio', 'sigpending', 'stack'] as const),
] as const;

/** What a job takes of the shell that it was submitted in, besides its environment. */
export const shell = z.object({
  umask: z.number().int().min(0).max(0o777),
  /** In the units of setrlimit(2); null: no limit. */
  limits: z
    .array(z.object({ name: z.enum(LIMITS), soft: whole.nullable(), hard: whole.nullable() }))
    .max(LIMITS.length),
});
export type Shell = z.infer<typeof shell>;
