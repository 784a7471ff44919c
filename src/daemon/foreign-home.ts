import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { OomtuneError } from '../common/errors.js';
import { stateFolder } from '../common/home.js';
import type { StoredJob } from '../store/index.js';

/** Whether another home launched it, in a folder that this home lacks. `token`: this home's. */
export function isForeign({ claim, launches }: StoredJob, token: string): boolean {
  const last = launches.at(-1);
  if (last === undefined || claim === null || claim.startsWith(`${token}.`)) return false;
  return !last.dir.startsWith(join(stateFolder('runs'), '/')) || !existsSync(last.dir);
}

/** The error for jobs that another home runs under this host's name, which must not be started twice; null: there are none. */
export function hostTaken(live: StoredJob[], host: string, token: string): OomtuneError | null {
  const jobs = live.filter((job) => job.claimHost === host && isForeign(job, token));
  const [first] = jobs;
  if (first === undefined) return null;
  const home = dirname(dirname(dirname(first.launches.at(-1)?.dir ?? '')));
  const others = jobs.length > 1 ? ` and ${jobs.length - 1} more` : '';
  return new OomtuneError(
    'OOMTUNE_HOST_TAKEN',
    `A daemon with the home ${home} calls itself ${host} too, and has launched ${first.job}${others}, which may still run.`,
    `Start it with that OOMTUNE_HOME, or give this one a name of its own by OOMTUNE_HOST; if the other is gone for good, \`oomtune daemon forget ${host}\`.`,
  );
}
