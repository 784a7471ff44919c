import { rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { z } from 'zod';
import { OomtuneError, usageError } from '../../common/errors.js';
import { readText } from '../../common/regular-file.js';
import { readJson } from '../../contract/fields.js';
import { ENDED_STATES, type JobRecord, type JobState } from '../../contract/job.js';
import { type SlurmPlace, slurmId } from '../../contract/slurm.js';
import type { Store, StoredJob } from '../../store/index.js';
import { followSlurm } from './follow.js';
import { clusterName, slurmOrThrow } from './programs.js';
import { ENDED, FIRST, PREEMPTED, RECORD, REPORT } from './script.js';
import { ARGUMENTS, environmentFor, submitScript } from './submit.js';

/** A job that Slurm runs. */
export type SlurmJob<J extends JobRecord = StoredJob> = J & { slurm: SlurmPlace };
export const isSlurms = <J extends JobRecord>(job: J | null): job is SlurmJob<J> => job?.slurm != null;

const LOOK_MS = 300;
/** Slurm ends what waits at once; what runs is told to end, and may take its time. */
const LOOKS = 6;

/** Has Slurm end it. Returns the state after a moment. Throws OOMTUNE_CLUSTER_MISSING or OOMTUNE_CLUSTER_REFUSED. */
export async function cancelInSlurm(store: Store, { job, slurm }: SlurmJob): Promise<JobState> {
  await here(slurm, job);
  const id = slurmId(slurm);
  if (id === null) return (await store.jobs.cancel(job)) as JobState; // it has not reached Slurm
  await slurmOrThrow('scancel', [id], `does not cancel job ${id}`);
  for (let looks = 0; ; looks++) {
    await followSlurm(store);
    const now = await store.jobs.get(job);
    if (now === null || ENDED_STATES.includes(now.state) || looks === LOOKS) return now?.state ?? 'cancelled';
    await delay(LOOK_MS);
  }
}

const saved = z.array(z.string());

/** Submits the script of an ended job again. Throws OOMTUNE_CLUSTER_MISSING or OOMTUNE_CLUSTER_REFUSED; then it stays ended. */
export async function retryInSlurm(
  store: Store,
  { job, slurm, options }: SlurmJob,
  environment: NodeJS.ProcessEnv,
): Promise<void> {
  await here(slurm, job);
  const words = readJson(saved, readText(join(dirname(slurm.script), ARGUMENTS)));
  if (words === null) {
    throw new OomtuneError(
      'OOMTUNE_CLUSTER_REFUSED',
      `The batch script of ${job} is no longer kept.`,
      'Submit its command anew: `oomtune explain` shows it.',
    );
  }
  for (const name of [ENDED, REPORT, RECORD, FIRST, PREEMPTED]) rmSync(join(slurm.folder, name), { force: true });
  const again = words
    .filter((word) => !word.startsWith('--dependency=')) // what it waited for has ended
    .map((word) => (word.startsWith('--array=') ? `--array=${slurm.task}` : word));
  const id = await submitScript(again, environmentFor(store, { options, environment }));
  await store.jobs.retry(job, null, { slurm: { ...slurm, id, missing_since: null }, reason: "waits in Slurm's queue" });
}

/** Throws OOMTUNE_USAGE for a job of another cluster. */
async function here(slurm: SlurmPlace, job: string): Promise<void> {
  if ((await clusterName()) === slurm.cluster) return;
  throw usageError(
    `${job} is in the Slurm cluster ${slurm.cluster}, not in this one.`,
    'Call it on a login node there.',
  );
}

/** Throws OOMTUNE_USAGE: Slurm orders its queue by itself. */
export function refuseSteering(
  { job, slurm }: SlurmJob,
  verb: 'hold' | 'release' | 'suspend' | 'resume' | 'update',
): never {
  const id = slurmId(slurm) ?? 'ID';
  throw usageError(
    `${job} is in Slurm's queue, which oomtune does not order.`,
    verb === 'update' ? `Write: scontrol update JobId=${id} Nice=… TimeLimit=…` : `Write: scontrol ${verb} ${id}`,
  );
}
