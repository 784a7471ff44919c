import { randomBytes } from 'node:crypto';
import { readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { writeDurably } from '../common/durable-file.js';
import { OomtuneError } from '../common/errors.js';
import { stateFolder } from '../common/home.js';
import { systemText } from '../common/regular-file.js';
import { jobId, readJson } from '../contract/fields.js';
import type { SubmittedEnvironment } from '../contract/job.js';
import { type Shell, shell } from '../contract/shell.js';
import { hostName, type Store } from '../store/index.js';
import { boundToHost } from '../worker/command/environment.js';
import { ownShell } from './own-shell.js';

/** A job's environment until it ends, in a private file of the submitting host: its values never go to Redis. */
const saved = z.object({
  store: z.string(),
  variables: z.record(z.string(), z.string()),
  /** Absent: saved by an earlier version. */
  shell: shell.optional(),
  /** The command or URL of `--notify`; absent: none. */
  notify: z.string().optional(),
});

/** A file may be written a moment before the record that names it. */
const SETTLED_MS = 60_000;

/** Returns the record's part. */
export function saveEnvironment(
  store: Store,
  job: string,
  variables: Record<string, string>,
  notify: string | null = null,
): SubmittedEnvironment {
  const file = randomBytes(8).toString('hex');
  writeDurably(
    pathOf(job, file),
    JSON.stringify({ store: nameOf(store), variables, shell: ownShell(), ...(notify ? { notify } : {}) }),
  );
  return { host: hostName(), file, bound: boundToHost(variables).slice(0, 1000), withheld: [] };
}

/** Null: submitted on another host or home, or retried without an environment. */
export function savedEnvironment(
  job: string,
  where: SubmittedEnvironment | null | undefined,
): Record<string, string> | null {
  if (!where?.file || where.host !== hostName()) return null;
  return read(pathOf(job, where.file))?.variables ?? null;
}

/** The umask and limits that the job was submitted with; null: not known here. */
export function savedShell(job: string, where: SubmittedEnvironment | null | undefined): Shell | null {
  if (!where?.file || where.host !== hostName()) return null;
  return read(pathOf(job, where.file))?.shell ?? null;
}

/** Whom to tell of the job; null: nobody, or not known here. */
export function savedNotify(job: string, where: SubmittedEnvironment | null | undefined): string | null {
  if (!where?.file || where.host !== hostName()) return null;
  return read(pathOf(job, where.file))?.notify ?? null;
}

export function forgetEnvironment(job: string, where: SubmittedEnvironment | null | undefined): void {
  if (where?.file && where.host === hostName()) rmSync(pathOf(job, where.file), { force: true });
}

/** After an error of the record that was to name it. Where that may have been taken all the same a sweep decides. */
export function forgetUnsent(error: unknown, job: string, where: SubmittedEnvironment | null | undefined): void {
  if (!isAnswerLost(error)) forgetEnvironment(job, where);
}

/** The daemon of the machine went away before it answered: it may have taken what it was sent. */
export const isAnswerLost = (error: unknown): error is OomtuneError =>
  error instanceof OomtuneError && error.code === 'OOMTUNE_DAEMON_DOWN';

/** Removes files that no unended job's record names. */
export async function sweepEnvironments(store: Store, isActive: (job: string) => boolean): Promise<void> {
  const settled = folder();
  // Submitting a thousand jobs must not check a thousand files a thousand times
  const mark = `${settled}-swept`;
  const since = statSync(mark, { throwIfNoEntry: false })?.mtimeMs ?? 0;
  if (Math.abs(Date.now() - since) < SETTLED_MS) return;
  writeFileSync(mark, '', { mode: 0o600 });
  const names = readdirSync(settled).filter((name) => Date.now() - changed(join(settled, name)) > SETTLED_MS);
  const files = names
    .map((name) => ({ path: join(settled, name), job: name.split('.')[0] ?? '', id: name.split('.')[1] }))
    .filter(({ job }) => jobId.safeParse(job).success && !isActive(job));
  const needed = await store.jobs.environments(files.map(({ job }) => job));
  for (const [at, { path, id }] of files.entries()) {
    const is = needed[at];
    // A home may serve several Redis servers, so a file that this one does not know may be another's
    const idle =
      is?.is === 'missing'
        ? read(path)?.store === nameOf(store)
        : is?.is === 'value' && (is.value !== id || path.endsWith('.tmp'));
    if (idle) rmSync(path, { force: true });
  }
}

const nameOf = ({ url, keys }: Store): string => `${url} ${keys.prefix}`;

const read = (path: string) => readJson(saved, systemText(path));

const changed = (path: string): number => statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? Date.now();

const pathOf = (job: string, file: string): string => join(folder(), `${job}.${file}.json`);

const folders = new Map<string | undefined, string>();

/** The folder is made once for each home: a daemon asks for every job. */
function folder(): string {
  const { OOMTUNE_HOME } = process.env;
  const found = folders.get(OOMTUNE_HOME) ?? stateFolder('daemon', 'environments');
  folders.set(OOMTUNE_HOME, found);
  return found;
}
