import { z } from 'zod';
import { wishOf } from './wish.js';

z.config({ customError: wishOf });

/** Types of values in documents and records. Bytes are integers, seconds have decimals. */

export const text = (most: number) => z.string().max(most);
export const time = z.iso.datetime({ offset: true });
export const whole = z.number().int().nonnegative();
export const bytes = whole.max(Number.MAX_SAFE_INTEGER);
/** A number of samples, steps, launches or devices. */
export const count = z.number().int().min(1).max(Number.MAX_SAFE_INTEGER);
export const pid = z.number().int().positive();
export const jobId = z.string().regex(/^j-[a-z0-9]{4,32}$/);
export const absolute = text(4096).refine((path) => path.startsWith('/') && !path.includes('\0'), 'an absolute path');
export const word = text(256).min(1);
/** Of a host: `rack=b`, `nvlink`. */
export const hostLabel = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}(=[A-Za-z0-9._/-]{0,63})?$/, 'a label such as rack=b or nvlink');
export const hostLabels = z.array(hostLabel).max(64);
/** Of a job: `ablation`, `paper/table-2`. */
export const jobTags = z
  .array(z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._=/-]{0,62}$/, 'a word such as ablation or paper/table-2'))
  .max(64);
/** No NUL: such an argument could not be passed to a program. */
export const argument = text(131_072).refine((value) => !value.includes('\0'), 'an argument without NUL');
export const command = z
  .array(argument)
  .min(1)
  .max(10_000)
  .refine((argv) => argv[0] !== '', 'a program to run');

/** What is wrong with a record, in one line: `options.gpus: it should be a number`. `whole`: what it is called itself. */
export function complaint(error: z.ZodError, whole = 'record'): string {
  const issue = error.issues[0];
  return issue === undefined ? 'it cannot be read' : `${issue.path.join('.') || whole}: it should be ${issue.message}`;
}

/** A text parsed and checked; null: no JSON, or not of this schema. */
export function readJson<S extends z.ZodType>(schema: S, text: string | null | undefined): z.infer<S> | null {
  try {
    return schema.parse(JSON.parse(text ?? ''));
  } catch {
    return null;
  }
}
