import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { readConfig } from '../common/config.js';
import { OomtuneError } from '../common/errors.js';
import { PACKAGE_ROOT } from '../common/home.js';
import { parseSpan } from '../common/span.js';
import { complaint } from '../contract/fields.js';

/** What a user may have; null: any number. */
export interface Limits {
  /** At a time, on all hosts. */
  gpus: number | null;
  /** Jobs that wait to start. */
  queued: number | null;
}

/** How people share devices. */
export interface FairShare {
  halfLifeMs: number;
  limits: Limits;
  /** By user: what differs from `limits`. */
  users: Record<string, Partial<Limits>>;
  /** Whose priorities count across users. */
  admins: string[];
}

const A_COUNT = 'a whole number, or null for any';
const A_TIME = 'a time such as 24h';
const count = z.int({ error: A_COUNT }).min(0, A_COUNT).nullable();
const limits = z.strictObject({ gpus: count, queued: count });
const file = z.strictObject({
  half_life: z
    .string(A_TIME)
    .refine((text) => parseSpan(text) !== null, A_TIME)
    .default('24h'),
  limits: limits.partial().default({}),
  users: z.record(z.string(), limits.partial()).default({}),
  admins: z.array(z.string()).default([]),
});

const MACHINES = '/etc/oomtune/fair-share.yaml';

/** The file in use: by OOMTUNE_FAIR_SHARE, the machine's, or the one that came with oomtune. */
function pathInUse(): string {
  if (process.env.OOMTUNE_FAIR_SHARE) return process.env.OOMTUNE_FAIR_SHARE;
  return existsSync(MACHINES) ? MACHINES : join(PACKAGE_ROOT, 'config', 'fair-share.yaml');
}

/** Throws OOMTUNE_USAGE for a file that cannot be used. */
export function readFairShare(path = pathInUse()): FairShare {
  try {
    const { half_life, limits, users, admins } = file.parse(readConfig(path) ?? {}); // an empty file changes nothing
    const halfLifeMs = (parseSpan(half_life) as number) * 1000;
    return { halfLifeMs, limits: { gpus: null, queued: null, ...limits }, users, admins };
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') {
      const remedy = 'Write it, or correct OOMTUNE_FAIR_SHARE, which names it.';
      throw new OomtuneError('OOMTUNE_USAGE', `There is no file ${path}.`, remedy, { cause });
    }
    const why = cause instanceof z.ZodError ? complaint(cause, 'the file') : (cause as Error).message;
    throw new OomtuneError(
      'OOMTUNE_USAGE',
      `${path} cannot be used: ${why}.`,
      'Correct it; docs/reference/configuration.md says what it takes.',
      { cause },
    );
  }
}

let read: FairShare | null = null;

/** The same, read once. */
export function fairShare(): FairShare {
  read ??= readFairShare();
  return read;
}

export const limitsOf = ({ limits, users }: FairShare, user: string | null): Limits => ({
  ...limits,
  ...(user !== null && Object.hasOwn(users, user) ? users[user] : {}),
});
