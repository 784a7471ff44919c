import { statSync, utimesSync, writeFileSync } from 'node:fs';
import { lstat, opendir, readdir, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { z } from 'zod';
import { readConfig } from '../common/config.js';
import { homePath, PACKAGE_ROOT, stateFolder } from '../common/home.js';
import type { Log } from '../common/log.js';
import { parseSize } from '../common/size.js';
import type { SlurmPlace } from '../contract/slurm.js';
import { isLocked } from '../runtime/folder-lock.js';
import type { Store } from '../store/index.js';

/** How much is kept of ended jobs. */
export interface Retention {
  days: number;
  jobs: number;
  bytes: number;
  /** Newer changes are kept in any case. */
  freshMs: number;
}

const DAY_MS = 86_400_000;
const FRESH_MS = 3_600_000;
/** Bounds the count, as a job may put any number of files there. */
const MOST_FILES = 10_000;

const file = z.strictObject({
  runs: z.strictObject({
    days: z.number().positive(),
    jobs: z.number().int().nonnegative(),
    size: z.string(),
  }),
});

/** Reads config/retention.yaml. Throws if it is invalid. */
export function readRetention(path = join(PACKAGE_ROOT, 'config', 'retention.yaml')): Retention {
  const { runs } = file.parse(readConfig(path));
  return { days: runs.days, jobs: runs.jobs, bytes: parseSize(runs.size), freshMs: FRESH_MS };
}

interface Kept {
  job: string;
  path: string;
  bytes: number;
  /** The last change, in milliseconds since the epoch. */
  changed: number;
  running: boolean;
}

/** Removes the oldest folders of ended jobs beyond the limits. Asks `isLive` before each. Returns the ids of the removed. */
export async function pruneRuns(
  folder: string,
  keep: Retention,
  isLive: (job: string) => boolean,
  log: Log,
): Promise<string[]> {
  const all: Kept[] = [];
  for (const job of await names(folder)) {
    const found = await look(folder, job);
    if (found !== null) all.push(found);
  }
  const now = Date.now();
  all.sort((a, b) => b.changed - a.changed);
  const gone: string[] = [];
  let jobs = 0;
  let bytes = 0;
  for (const one of all) {
    jobs += 1;
    bytes += one.bytes;
    const surplus = jobs > keep.jobs || bytes > keep.bytes || now - one.changed > keep.days * DAY_MS;
    if (!surplus || one.running || now - one.changed < keep.freshMs || isLive(one.job)) continue;
    try {
      await rm(one.path, { recursive: true, force: true });
    } catch (error) {
      log.warn({ err: error, job: one.job }, 'the folder of a job that has ended cannot be removed');
      continue;
    }
    gone.push(one.job);
    jobs -= 1;
    bytes -= one.bytes;
  }
  return gone;
}

async function names(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { withFileTypes: true }).catch(noFolder);
  return entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
}

function noFolder(error: NodeJS.ErrnoException): never[] {
  if (error.code === 'ENOENT') return [];
  throw error;
}

/** Null: it is gone. */
async function look(folder: string, job: string): Promise<Kept | null> {
  const path = join(folder, job);
  const kept: Kept = { job, path, bytes: 0, changed: 0, running: false };
  try {
    kept.changed = (await lstat(path)).mtimeMs;
    const left = { files: MOST_FILES };
    for (const launch of await names(path)) {
      const dir = join(path, launch);
      kept.changed = Math.max(kept.changed, (await lstat(dir)).mtimeMs);
      kept.running ||= isLocked(dir);
      kept.bytes += await bytesIn(dir, left);
    }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
  return kept;
}

/** Bytes on the disk, which may be less than a sparse file's length. */
async function bytesIn(dir: string, left: { files: number }): Promise<number> {
  let bytes = 0;
  for await (const entry of await opendir(dir)) {
    left.files -= 1;
    if (left.files < 0) break;
    const path = join(dir, entry.name);
    if (entry.isDirectory()) bytes += await bytesIn(path, left);
    else bytes += ((await lstat(path).catch(() => null))?.blocks ?? 0) * 512;
  }
  return bytes;
}

const EVERY_MS = 3_600_000;

/** The folder of a submission to Slurm, with one for each of its tasks. */
const submissionOf = ({ script }: SlurmPlace): string => basename(dirname(script));

/** Removes what exceeds the limits. Reads the jobs first, so that an error of Redis removes nothing. */
export async function tidyRuns(store: Store, log: Log, keep: Retention = readRetention()): Promise<void> {
  const live = new Set(await store.jobs.liveIds());
  const gone = await pruneRuns(stateFolder('runs'), keep, (job) => live.has(job), log);
  const inSlurm = new Set(
    (await store.jobs.live()).flatMap(({ slurm }) => (slurm == null ? [] : [submissionOf(slurm)])),
  );
  gone.push(...(await pruneRuns(join(homePath(), 'slurm'), keep, (name) => inSlurm.has(name), log)));
  if (gone.length > 0) log.info({ jobs: gone.length }, 'folders of jobs that ended long ago were removed');
}

/** The same for foreground verbs on hosts without a daemon, at most once an hour. Never rejects. */
export async function tidyHourly(open: () => Promise<Store>, log: Log): Promise<void> {
  try {
    const mark = join(stateFolder('runs'), '.tidied');
    const last = statSync(mark, { throwIfNoEntry: false })?.mtimeMs ?? 0;
    if (Math.abs(Date.now() - last) < EVERY_MS) return;
    writeFileSync(mark, '', { mode: 0o600 });
    utimesSync(mark, new Date(), new Date());
    await tidyRuns(await open(), log);
  } catch (error) {
    log.info({ err: error }, 'what jobs left behind could not be tidied');
  }
}
