import { z } from 'zod';

/** What goes over the socket of the daemon for all users of a machine, and between it and its agents. No public format. */

/** A line of JSON: a call, what is told of it meanwhile, that it is given up, or its end. */
export const channelMessage = z.union([
  z.object({ id: z.number().int(), call: z.string().max(100), args: z.array(z.unknown()).max(20) }),
  z.object({ id: z.number().int(), error: z.record(z.string(), z.unknown()) }),
  z.object({ id: z.number().int(), note: z.unknown(), is: z.literal('note') }),
  z.object({ id: z.number().int(), is: z.literal('abort') }),
  z.object({ id: z.number().int(), value: z.unknown() }),
]);
export type ChannelMessage = z.infer<typeof channelMessage>;

/** How many ended jobs a list is to hold. */
export const listWish = z.object({ ended: z.number().int().min(0).max(10_000).optional() }).optional();
