import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { OomtuneError } from '../../common/errors.js';
import { readText } from '../../common/regular-file.js';
import { readJson } from '../../contract/fields.js';
import { runReport } from '../../contract/reports.js';
import { type SlurmPlace, slurmId } from '../../contract/slurm.js';
import type { Store, StoredJob } from '../../store/index.js';
import { clusterName, slurm, slurmOrThrow } from './programs.js';
import {
  ACCOUNTING_FIELDS,
  accountingRows,
  accountOf,
  exitCodeIn,
  QUEUE_FORMAT,
  queueRows,
  rowOf,
  type SlurmRow,
} from './rows.js';
import { ENDED, PREEMPTED, REPORT } from './script.js';
import { type Left, standing } from './standing.js';

type Followed = StoredJob & { slurm: SlurmPlace };

/** After Slurm did not answer nobody asks it again for so long: each question takes it nine seconds. */
const PATIENCE_MS = 15_000;
let silentUntil = 0;

/**
 * Brings the records of this user's jobs in this machine's cluster up to date with what Slurm says of them. Records of other
 * clusters stay as they are. Where Slurm does not answer they say so, and stand as they were, but for what has written its end.
 */
export async function followSlurm(store: Store): Promise<void> {
  if (!(await store.jobs.inSlurm())) return;
  const live = (await store.jobs.live()).filter((job): job is Followed => job.slurm != null && isOurs(job.slurm));
  const { cluster, rowFor } = await ask(live);
  for (const job of live) {
    if (cluster === null || job.slurm.cluster === cluster) await look(store, job, rowFor);
  }
}

const isOurs = ({ uid }: SlurmPlace): boolean => uid === process.getuid?.();

/** Finds what Slurm says of a job; a text: why it does not answer. */
type RowFor = ((place: SlurmPlace) => SlurmRow | null) | string;

/** Asks for all at once. `cluster` null: whichever they are in does not answer. */
async function ask(jobs: Followed[]): Promise<{ cluster: string | null; rowFor: RowFor }> {
  if (jobs.length === 0) return { cluster: null, rowFor: () => null };
  if (Date.now() < silentUntil) return { cluster: null, rowFor: 'its controller did not answer a moment ago' };
  try {
    const cluster = await clusterName();
    const ours = jobs.map(({ slurm }) => slurm).filter((place) => place.cluster === cluster);
    return { cluster, rowFor: ours.length === 0 ? () => null : await listing(ours) };
  } catch (error) {
    if (!(error instanceof OomtuneError)) throw error;
    if (error.code === 'OOMTUNE_CLUSTER_MISSING') return { cluster: '', rowFor: '' }; // another machine's to follow
    silentUntil = Date.now() + PATIENCE_MS;
    return { cluster: null, rowFor: error.message };
  }
}

/** Throws OOMTUNE_CLUSTER_REFUSED where Slurm does not answer. */
async function listing(places: SlurmPlace[]): Promise<RowFor> {
  const user = `--user=${process.getuid?.() ?? 0}`;
  const wanted = ['--noheader', '--all', '--array', '--states=all', user, `--format=${QUEUE_FORMAT}`];
  const rows = queueRows(await slurmOrThrow('squeue', wanted, 'does not answer'));
  const accounts = await accounting(places.filter((place) => place.id !== null && rowOf(rows, place) === null));
  return (place) => rowOf(rows, place) ?? accountOf(accounts, place);
}

/** What it no longer lists, where it keeps accounts. */
async function accounting(places: SlurmPlace[]): Promise<Map<string, SlurmRow>> {
  if (places.length === 0) return new Map();
  const ids = places.map((place) => slurmId(place)).join(',');
  const wanted = ['--noheader', '--parsable2', '--allocations', `--format=${ACCOUNTING_FIELDS}`, `--jobs=${ids}`];
  const said = await slurm('sacct', wanted).catch(() => null); // a cluster without accounts may come without sacct
  return said?.code === 0 ? accountingRows(said.stdout) : new Map();
}

async function look(store: Store, { job: id, slurm: place }: Followed, rowFor: RowFor): Promise<void> {
  const left = leftIn(place.folder);
  const row = typeof rowFor === 'string' ? null : await withExit(rowFor(place), place, left);
  // read again: while Slurm was asked another look may have ended it, or `retry` submitted it anew
  const job = await store.jobs.get(id);
  if (job?.slurm == null || job.slurm.id !== place.id || job.slurm.script !== place.script) return;
  const silent = typeof rowFor === 'string' && left.ended === null;
  const patch = silent
    ? { reason: `${rowFor} It was last seen ${job.state}.` }
    : standing(job, job.slurm, row, left, Date.now());
  if (patch === null || (silent && job.reason === patch.reason)) return;
  await store.jobs.patch(id, patch);
}

/** The queue does not tell exit codes; it is asked only for one that its script could not write. */
async function withExit(row: SlurmRow | null, place: SlurmPlace, left: Left): Promise<SlurmRow | null> {
  if (row === null || row.exitCode !== null || row.state !== 'FAILED' || left.ended !== null) return row;
  const shown = await slurm('scontrol', ['show', 'job', '--oneliner', slurmId(place) ?? '']);
  return shown.code === 0 ? { ...row, exitCode: exitCodeIn(shown.stdout) } : row;
}

/** What the job's script has written. A shared file system shows new files to who reads the folder. */
function leftIn(folder: string): Left {
  try {
    readdirSync(folder);
  } catch {
    return { ended: null, report: null, preempted: false };
  }
  const [, code, at] = /^(\d+) (\d+)\n/.exec(readText(join(folder, ENDED)) ?? '') ?? [];
  return {
    ended: code === undefined ? null : { code: Number(code), at: Number(at) },
    report: readJson(runReport, readText(join(folder, REPORT))),
    preempted: existsSync(join(folder, PREEMPTED)),
  };
}
