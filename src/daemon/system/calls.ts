import { z } from 'zod';
import { usageError } from '../../common/errors.js';
import { complaint, jobId } from '../../contract/fields.js';
import type { Store } from '../../store/index.js';
import type { Channel } from './channel.js';
import type { LeaseDesk } from './lease-desk.js';
import type { Peer } from './peer.js';

/** What a call is answered with. */
export interface Caller {
  peer: Peer;
  signal: AbortSignal;
  /** Tells the caller something while the call runs. */
  note: (value: unknown) => void;
  /** Things that the caller holds until it lets go, or its connection ends. */
  held: Held;
}

/** Reservations by their owners' names: left to what runs when the connection ends. */
export type Held = Map<string, LeaseDesk>;

export interface Call {
  args: z.ZodType<unknown[]>;
  run: (caller: Caller, args: never[]) => Promise<unknown>;
}

/** One call that clients may make: its arguments are checked before it runs. */
export function call<A extends [z.ZodType, ...z.ZodType[]] | []>(
  args: A,
  run: (caller: Caller, args: { [K in keyof A]: z.infer<A[K]> }) => Promise<unknown>,
): Call {
  return { args: z.tuple(args as never) as never, run: run as never };
}

export type Calls = Record<string, Call>;

/** Answers a call by its name. Throws OOMTUNE_USAGE for one that is not offered, or with other arguments. */
export async function answer(calls: Calls, name: string, args: unknown[], caller: Caller): Promise<unknown> {
  const found = Object.hasOwn(calls, name) ? calls[name] : undefined;
  if (found === undefined) throw notOffered(name);
  const read = found.args.safeParse(args);
  if (!read.success) {
    throw usageError(
      `The daemon cannot read ${name}: ${complaint(read.error, 'arguments')}.`,
      'Client and daemon of one machine should be of the same version: `oomtune --version`, `oomtune daemon status`.',
    );
  }
  return found.run(caller, read.data as never[]);
}

export const notOffered = (name: string) =>
  usageError(
    `The daemon of this machine does not offer ${name}.`,
    'Set OOMTUNE_HOME to a folder of yours to work with a daemon and a Redis of your own.',
  );

export const id = jobId;
/** A job's id, or what somebody wrote for one. */
export const handle = z.string().max(256);
export type { Channel, Store };
