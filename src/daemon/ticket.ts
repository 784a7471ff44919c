import { z } from 'zod';
import type { Ticket } from './queues.js';

const schema = z.object({ job: z.string().regex(/^j-[a-z0-9]{4,32}$/), epoch: z.number().int().min(1) });

/** A queue's entry as it came from Redis; null for what cannot be trusted. */
export function readTicket(data: unknown): Ticket | null {
  const parsed = schema.safeParse(data);
  return parsed.success ? parsed.data : null;
}
