import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { usageError } from '../../common/errors.js';
import { stateFolder } from '../../common/home.js';
import type { JobRecord } from '../../contract/job.js';
import type { SlurmPlace } from '../../contract/slurm.js';
import { hostName, namedJob, newJobId, type Store } from '../../store/index.js';
import { jobEnvironment } from '../../worker/command/environment.js';
import { type Member, type Submission, submitJob, submitSweep } from '../submit.js';
import { clusterName, slurmOrThrow } from './programs.js';
import { batchScript, LOG, taskFolder } from './script.js';

/** How a job goes to Slurm. */
export interface ToSlurm {
  /** Words for `oomtune run`, by which it finds its configuration. */
  words: string[];
  /** How oomtune was called. */
  program: string[];
  /** 0: it works in the host's memory. */
  gpus: number;
  /** Of the host; null: Slurm's own default. */
  hostMib: number | null;
  /** Options of sbatch, as the user wrote them. */
  options: string[];
}

type Sweep = { members: Member[]; atOnce: number | null };

/**
 * Writes a batch script and submits it, an array for several members. The records are there before Slurm is asked, and go where
 * it refuses. Throws OOMTUNE_CLUSTER_MISSING or OOMTUNE_CLUSTER_REFUSED, and as `submitJob`.
 */
export async function submitToSlurm(
  store: Store,
  submission: Submission,
  sweep: Sweep | null,
  to: ToSlurm,
): Promise<JobRecord[]> {
  const cluster = await clusterName();
  const { options } = submission;
  const members = sweep?.members ?? [{ command: submission.command, suffix: '', index: null }];
  const indices = new Set(members.map(({ index }) => index));
  const byIndex = indices.size === members.length && !indices.has(null); // as the user numbered them, where that is unique
  const folder = stateFolder('slurm', newJobId().replace('j-', 'b-'));
  const script = join(folder, 'script');
  const place = (member: number): SlurmPlace => {
    const task = sweep === null ? null : ((byIndex ? members[member]?.index : null) ?? member);
    return { cluster, uid: process.getuid?.() ?? 0, id: null, task, script, folder: taskFolder(folder, task) };
  };
  for (const member of members.keys()) mkdirSync(place(member).folder, { mode: 0o700 });
  const tasks = members.map(({ command, index }, at) => ({ task: place(at).task ?? 0, command, index }));
  const text = batchScript({
    folder,
    cwd: options.cwd,
    program: to.program,
    words: to.words,
    tasks,
    retries: options.retries,
    redisHost: store.secretUrl === null || store.secretUrl.startsWith('unix:') ? hostName() : null,
  });
  writeFileSync(script, text, { mode: 0o700 });
  const dependencies = await dependenciesOf(store, submission, cluster);
  const records =
    sweep === null
      ? [await submitJob(store, { ...submission, place })]
      : await submitSweep(store, { ...submission, place }, sweep);
  const name = options.name ?? records[0]?.name ?? 'oomtune';
  const words = [
    ...fixed(
      name,
      folder,
      sweep === null
        ? null
        : arrayOf(
            tasks.map(({ task }) => task),
            sweep.atOnce,
          ),
    ),
    ...resources(options, to),
    ...dependencies,
    ...to.options,
    script,
  ];
  writeFileSync(join(folder, ARGUMENTS), JSON.stringify(words), { mode: 0o600 });
  try {
    const id = await submitScript(words, environmentFor(store, submission));
    for (const { job, slurm } of records)
      if (slurm != null) await store.jobs.patch(job, { slurm: { ...slurm, id }, reason: "waits in Slurm's queue" });
  } catch (error) {
    await store.jobs.withdraw(records.map(({ job }) => job));
    throw error;
  }
  return records;
}

/** Of sbatch, for `retry`. */
export const ARGUMENTS = 'arguments.json';

/** Has sbatch submit what the words say. Returns the number that Slurm gives it. Throws OOMTUNE_CLUSTER_REFUSED. */
export async function submitScript(words: string[], env: NodeJS.ProcessEnv): Promise<string | null> {
  const said = await slurmOrThrow('sbatch', ['--parsable', ...words], 'refused the job', env);
  return /(?:^|\n)(\d+)(?:;.*)?$/.exec(said)?.[1] ?? null;
}

/** The submitter's, as a job of a daemon gets it; the URL of Redis goes this way, as no file is to hold its password. */
export function environmentFor(
  store: Store,
  { options, environment }: Pick<Submission, 'options' | 'environment'>,
): NodeJS.ProcessEnv {
  const url = store.secretUrl === null ? {} : { OOMTUNE_REDIS_URL: store.secretUrl };
  // oomtune's own settings are for the `oomtune run` in the allocation, which keeps them from the job
  const settings = Object.entries(environment).filter(
    ([name]) => /^OOMTUNE_/.test(name) && name !== 'OOMTUNE_FIRST_START',
  );
  return { ...Object.fromEntries(settings), ...jobEnvironment({ ...options, envFile: null }, environment), ...url };
}

function fixed(name: string, folder: string, array: string | null): string[] {
  const percent = folder.replaceAll('%', '%%');
  return [
    `--job-name=${name.replace(/[^\w.+@-]+/g, '-').replace(/^-+|-+$/g, '') || 'oomtune'}`,
    `--output=${percent}/${array === null ? '0' : '%a'}/${LOG}`,
    '--open-mode=append',
    `--chdir=${folder}`,
    '--nodes=1',
    '--ntasks=1',
    ...(array === null ? [] : [`--array=${array}`]),
  ];
}

function resources(options: Submission['options'], to: ToSlurm): string[] {
  const { timeSeconds, gpuModel, host, exclusive, priority, retries } = options;
  const kind = gpuModel === null ? 'gpu' : `gpu:${gpuModel}`;
  return [
    ...(to.gpus > 0 ? [`--gres=${kind}:${to.gpus}`] : []),
    ...(to.hostMib === null ? [] : [`--mem=${to.hostMib}M`]),
    ...(timeSeconds == null ? [] : [`--time=${Math.ceil(timeSeconds / 60)}`]),
    ...(host === null ? [] : [`--nodelist=${host}`]),
    ...(exclusive ? ['--exclusive'] : []),
    ...(priority === 0 ? [] : [`--nice=${0 - priority}`]),
    retries > 0 ? '--requeue' : '--no-requeue',
  ];
}

/** `0-59%4`, with runs of numbers as ranges. */
function arrayOf(tasks: number[], atOnce: number | null): string {
  const parts: [number, number][] = [];
  for (const task of [...tasks].sort((a, b) => a - b)) {
    const last = parts.at(-1);
    if (last !== undefined && last[1] === task - 1) last[1] = task;
    else parts.push([task, task]);
  }
  const list = parts.map(([from, to]) => (from === to ? String(from) : `${from}-${to}`)).join(',');
  return atOnce === null ? list : `${list}%${atOnce}`;
}

/** `--after` and `--after-any` of jobs in the same cluster. Throws OOMTUNE_USAGE for others, and OOMTUNE_NO_SUCH_JOB. */
async function dependenciesOf(store: Store, { options }: Submission, cluster: string): Promise<string[]> {
  const words: string[] = [];
  for (const [how, names] of [
    ['afterok', options.after],
    ['afterany', options.afterAny ?? []],
  ] as const) {
    const found = await Promise.all(names.map((name) => namedJob(store.jobs, name)));
    for (const { job } of found) {
      if (job.slurm?.cluster !== cluster || job.slurm.id === null) {
        throw usageError(
          `${job.job} is no job of this Slurm, so that nothing there could wait for it.`,
          `Wait for it first: oomtune wait ${job.job} && oomtune submit --via slurm …`,
        );
      }
      words.push(`${how}:${job.slurm.id}${job.slurm.task === null ? '' : `_${job.slurm.task}`}`);
    }
  }
  return words.length === 0 ? [] : [`--dependency=${words.join(',')}`];
}
