import { z } from 'zod';
import { absolute, text } from './fields.js';

/** Where a job stands that Slurm runs instead of a daemon. */
export const slurmPlace = z.object({
  /** Slurm's name of the cluster. */
  cluster: text(256),
  /** Who submitted it (uid). */
  uid: z.number().int().min(0),
  /** Slurm's number of the job or the array; null: it has not been given one yet. */
  id: z
    .string()
    .regex(/^\d{1,20}$/)
    .nullable(),
  /** Its task of an array; null: it is no array. */
  task: z.number().int().min(0).max(1_000_000_000).nullable(),
  /** The batch script: what Slurm's own listing knows it by. */
  script: absolute,
  /** Its log, its report and how it ended. */
  folder: absolute,
  partition: text(256).nullish(),
  /** Since when Slurm does not list it although it has not ended; null or absent: it does. */
  missing_since: text(64).nullish(),
});
export type SlurmPlace = z.infer<typeof slurmPlace>;

/** `123`, or `123_4` for a task of an array. */
export const slurmId = ({ id, task }: SlurmPlace): string | null =>
  id === null || task === null ? id : `${id}_${task}`;
