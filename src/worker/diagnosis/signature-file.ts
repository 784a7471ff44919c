import { z } from 'zod';
import { FAILURE_CLASSES } from '../../contract/failure.js';

const FIELD_NAMES = [
  'tried_bytes',
  'total_bytes',
  'free_bytes',
  'allocated_bytes',
  'reserved_bytes',
  'unallocated_bytes',
  'process_bytes',
  'allowed_bytes',
  'used_bytes',
  'gpu',
  'neighbour',
] as const;
export type FieldName = (typeof FIELD_NAMES)[number];

const failureClass = z.enum(FAILURE_CLASSES);

/** What a signature's text is worth when several are in one log. */
const role = z.enum([
  // Ends the process that wrote it.
  'fatal',
  // Something else failed first, and this follows from it; believed only when nothing else is there.
  'echo',
  // Says that something failed, not what (launchers' summaries).
  'wrapper',
  // Someone put an end to it; if something had failed before, that was the reason.
  'ending',
  // May or may not have ended anything: counts if nothing better does.
  'weak',
  // Was dealt with; never the reason.
  'soft',
]);

/** Texts, one a line: the file's reader takes a block of lines much faster than a list. */
const texts = z
  .string()
  .default('')
  .transform((block) => block.split('\n').filter((line) => line.trim() !== ''))
  .pipe(z.array(z.string().min(3)));

export const signatureSchema = z
  .object({
    id: z.string().regex(/^[a-z0-9-]+$/),
    class: failureClass,
    role: role.default('fatal'),
    /** False: the text can mean something else; for device_oom: to be tried once smaller before it is believed. */
    certain: z.boolean().default(true),
    /** One of these is the signature. `|` at either end: a word ends there; `^` and `$`: the line does. */
    any: texts,
    /** One of these must stand nearby too. */
    with: texts,
    /** None of these may be in its line. */
    without: texts,
    /** One of these must be in the innermost frames of its traceback. */
    framed: texts,
    /** How many lines before and after count as nearby for `with`. */
    near: z.number().int().min(0).max(12).default(2),
    /** The families of figures that the message may hold. */
    fields: z.array(z.string()).default([]),
    phase: z.enum(['load', 'eval', 'save', 'train']).optional(),
    /** Whose message it is, of `programs`. */
    program: z.string().optional(),
    /** Signatures and classes that it is only a consequence of, if no progress stands between them. */
    after: z.array(z.string()).default([]),
    /** Who runs the job knows better than later progress, errors and signals (`signal`), or even than exit status 0 (`exit`). */
    outranks: z.enum(['signal', 'exit']).optional(),
    /** Who says it does so at the level of a warning or below, though it is none. */
    quiet: z.boolean().default(false),
    /** Shells, commands and libraries say it of what they get on without: it ended nothing if the log goes on behind it. */
    passing: z.boolean().default(false),
    /** Native code prints it just before an exception that says less: the exception is then read as this. */
    prelude: z.boolean().default(false),
    cause: z.string().min(10),
    advice: z.string(),
  })
  .strict();

export const programSchema = z
  .object({
    id: z.string().regex(/^[a-z0-9-]+$/),
    /** It serves a model, and trains none. */
    inference: z.boolean().default(false),
    texts: texts.default([]),
    files: texts.default([]),
    functions: texts.default([]),
    advice: z.string(),
  })
  .strict();

/** What config/signatures.yaml may hold. */
export const fileSchema = z
  .object({
    schema: z.literal(1),
    advice: z.record(z.string(), z.string().min(10)),
    fields: z.record(z.string(), z.partialRecord(z.enum(FIELD_NAMES), z.array(z.string().min(3)))),
    programs: z.array(programSchema),
    signatures: z.array(signatureSchema).min(1),
    exceptions: z.array(
      z
        .object({
          /** Whole names, last or dotted. */
          names: z.array(z.string().regex(/^[A-Za-z_][\w.]*$/)).default([]),
          /** Parts of names that no entry holds whole. */
          like: z.array(z.string().regex(/^[A-Za-z]{4,}$/)).default([]),
          class: failureClass,
          role: role.default('fatal'),
          certain: z.boolean().default(true),
          cause: z.string().min(10),
          advice: z.string(),
        })
        .strict(),
    ),
  })
  .strict();
