import { z } from 'zod';

/** One reservation of a device's memory, as views show it. */
export const holder = z.object({
  job: z.string(),
  /** The user whose job or command it is; null: it was taken by a version that did not ask. */
  owner: z.string().nullable(),
  /** Null: the whole device. */
  bytes: z.number().nullable(),
  share: z.boolean(),
});
export type Holder = z.infer<typeof holder>;
