import { z } from 'zod';
import { FAILURE_CLASSES, phase } from './failure.js';

const figure = z.number().nullable();

/**
 * `batch`: the batch itself. `asked`: one request larger than the device. `data`: the data set is on the device. `after`: the
 * training loop had ended. `limit`: refused below the device's size. `worker`: a process of
 * the data loader ran out, not the training.
 */
const memoryReason = z.enum([
  'batch',
  'neighbour',
  'data',
  'limit',
  'fragmentation',
  'leak',
  'load',
  'eval',
  'save',
  'after',
  'worker',
  'asked',
]);
export type MemoryReason = z.infer<typeof memoryReason>;

/** Who held the device's memory when it ran out, in bytes; null: not said. */
const memoryPicture = z.object({
  total_bytes: figure,
  /** Held by the process that failed, contexts included. */
  process_bytes: figure,
  others_bytes: figure,
  free_bytes: figure,
  asked_bytes: figure,
  /** Held by the process's allocator, but by no tensor. */
  unallocated_bytes: figure,
  /** The others, by name where known. */
  neighbours: z.array(z.object({ pid: z.number(), name: z.string().nullable(), bytes: z.number() })),
});
export type MemoryPicture = z.infer<typeof memoryPicture>;

const figures = z.object({
  tried_bytes: figure,
  total_bytes: figure,
  free_bytes: figure,
  allocated_bytes: figure,
  reserved_bytes: figure,
  gpu: figure,
});

/** The document of `diagnose --json`. */
export const diagnosis = z.object({
  class: z.enum([...FAILURE_CLASSES, 'ok']),
  certain: z.boolean(),
  evidence: z.string().nullable(),
  line: z.number().nullable(),
  fields: figures,
  phase,
  cause: z.string(),
  advice: z.string(),
  /** The text can mean something else: to be tried once smaller before it is believed. */
  ambiguous: z.boolean().optional(),
  /** What would help. `none`: no smaller batch will (a leak, the model itself, a neighbour). */
  cure: z.enum(['smaller', 'expandable_segments', 'wait', 'none']).optional(),
  /** Why there was too little device memory, where that can be told; each calls for another remedy. */
  reason: memoryReason.nullable().optional(),
  /** The signature that matched, from config/signatures.yaml. */
  signature: z.string().nullable().optional(),
  /** The rank (or pod, pid) whose failure came first; null where the log names none. */
  rank: z.string().nullable().optional(),
  memory: memoryPicture.nullable().optional(),
  /** Numbers of the lines with device OOMs that the job got over. */
  soft_ooms: z.array(z.number()).optional(),
});
export type Diagnosis = z.infer<typeof diagnosis>;

/** For failures without figures. */
export const NO_FIGURES = Object.fromEntries(Object.keys(figures.shape).map((name) => [name, null])) as z.infer<
  typeof figures
>;
