import { statSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { stateFolder } from '../common/home.js';
import type { Log } from '../common/log.js';
import type { Store } from '../store/index.js';
import { pruneRuns, type Retention, readRetention } from './retention.js';

const EVERY_MS = 3_600_000;

/** Removes what is not to be kept of jobs that have ended. Jobs are asked for first: an error of Redis removes nothing. */
export async function tidyRuns(store: Store, log: Log, keep: Retention = readRetention()): Promise<void> {
  const live = new Set(await store.jobs.liveIds());
  const gone = await pruneRuns(stateFolder('runs'), keep, (job) => live.has(job), log);
  if (gone.length > 0) log.info({ jobs: gone.length }, 'folders of jobs that ended long ago were removed');
}

/** The same for foreground verbs, which a host may have without a daemon: once an hour at most. Never rejects. */
export async function tidyNowAndThen(open: () => Promise<Store>, log: Log): Promise<void> {
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
