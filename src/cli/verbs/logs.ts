import { existsSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { usageError } from '../../common/errors.js';
import { formatBytes } from '../../common/size.js';
import { TerminalText } from '../../common/terminal.js';
import type { JobRecord } from '../../contract/job.js';
import { followSlurm } from '../../daemon/slurm/follow.js';
import { Presence } from '../../daemon/wait.js';
import { readExit } from '../../runtime/records.js';
import { hostName, patient, type Store } from '../../store/index.js';
import { readForeground } from '../foreground-jobs.js';
import { namedJobs } from '../jobs.js';
import { LogFile } from '../log-file.js';
import type { Paint } from '../output.js';
import { SearchFollow } from '../search-follow.js';
import { hasEnded } from '../status-view.js';
import { checkMayRead } from '../system/client.js';
import { readNumber, type Verb } from '../verb.js';

export default (async ({ args, options }, context) => {
  const { out, signal } = context;
  const remedy = 'See `oomtune logs --help`.';
  const lines = readNumber('--lines', options.lines, { remedy });
  const launch = readNumber('--launch', options.launch, { least: 1, remedy });
  const store = await context.store();
  const jobs = await namedJobs(store, args, out, { takesForeground: true });
  const system = await context.system();
  for (const job of jobs) checkMayRead(system, job);
  const follow = Boolean(options.follow);
  if (out.json) {
    if (follow) throw usageError('--follow goes on; --json writes one document.', 'Leave one of the two out.');
    const logs = await Promise.all(
      jobs.map(async (job) => ({ job: job.job, ...(await readLog(store, job, { launch, lines })) })),
    );
    out.document('logs', { schema: 1, logs });
    return 0;
  }
  await showLogs(store, jobs, {
    follow,
    lines,
    launch,
    signal,
    write: (text) => process.stdout.write(text),
    terminal: Boolean(process.stdout.isTTY),
    note: out.note,
    paint: out.paintErr,
  });
  return 0;
}) satisfies Verb;

interface LogOptions {
  follow: boolean;
  /** Only the last lines; null: all. */
  lines: number | null;
  /** Null: the latest, and when following each new one. */
  launch: number | null;
  signal: AbortSignal;
  write: (data: Buffer | string) => void;
  /** It goes to a terminal, which is spared all but text and colours; a file or a pipe gets every byte. */
  terminal: boolean;
  note: (text: string) => void;
  /** Of notes. */
  paint: Paint;
}

const LOOK_MS = 200;
/** Slurm announces nothing, and is asked for all jobs at once. */
const SLURM_LOOK_MS = 2000;
/** Longer lines are shown in parts, to bound memory. */
const LONGEST_LINE = 64 * 1024;

/** Shows jobs' output, with a prefix on each line for several jobs. */
export async function showLogs(store: Store, jobs: JobRecord[], options: LogOptions): Promise<void> {
  const widest = Math.max(...jobs.map((job) => label(job, jobs).length));
  const writers = jobs.map((job) => {
    const name = `${label(job, jobs).padEnd(widest)} | `;
    const writer = jobs.length === 1 ? raw(options.write) : prefixed(name, options.write);
    return options.terminal ? safe(writer) : writer;
  });
  if (options.follow) {
    const waits = patient(store, options.signal);
    await Promise.all(jobs.map((job, at) => follow(waits, job, options, writers[at] as Writer)));
    return;
  }
  for (const [at, job] of jobs.entries()) {
    const writer = writers[at] as Writer;
    const launch = pick(job, options.launch);
    const tailOnly = isAway(job) || isGone(job, launch);
    const file = tailOnly ? null : open(launch, options);
    if (isGone(job, launch)) options.note(`The log of ${job.job} is no longer kept: the end of its output is shown.`);
    if (tailOnly) writer.write(await tailOf(store, job, options));
    else if (file === null) options.note(`${job.job} has not written anything yet.`);
    else writeAll(file, writer);
    writer.end();
    noteLost(job, launch, options);
  }
}

/** Says what is not in the log, as the disk was full when the job printed it. */
function noteLost(job: JobRecord, launch: Launch | null, { note }: Pick<LogOptions, 'note'>): void {
  const lost = launch === null || isAway(job) ? 0 : (readExit(launch.dir)?.lost_bytes ?? 0);
  if (lost > 0) note(`${job.job}: ${formatBytes(lost)} of its output were lost: the disk of its log was full.`);
}

/** The same for `--json`. */
async function readLog(
  store: Store,
  job: JobRecord,
  options: Pick<LogOptions, 'launch' | 'lines'>,
): Promise<{ launch: number | null; log: string }> {
  const launch = pick(job, options.launch);
  if (isAway(job) || isGone(job, launch))
    return { launch: launch?.launch ?? null, log: (await tailOf(store, job, options)).toString('utf8') };
  const file = open(launch, options);
  return { launch: launch?.launch ?? null, log: file === null ? '' : wholeLog(file).toString('utf8') };
}

/** The most of a log in one document; the supervisor's two files have as much. */
const MOST_BYTES = 128 * 1024 ** 2;

function wholeLog(file: LogFile): Buffer {
  const chunks: Buffer[] = [];
  let length = 0;
  for (const chunk of file.read()) {
    chunks.push(chunk);
    length += chunk.length;
    if (length >= MOST_BYTES) break;
  }
  file.close();
  return Buffer.concat(chunks);
}

async function follow(store: Store, first: JobRecord, options: LogOptions, writer: Writer): Promise<void> {
  if (isAway(first)) return followAway(store, first, options, writer);
  const presence = new Presence([first.job]);
  let job = first;
  let file: LogFile | null = null;
  let shown = 0;
  let waits = '';
  let asked = 0;
  const search = new SearchFollow(options.note, options.paint);
  while (!options.signal.aborted) {
    const launch = pick(job, options.launch);
    if (launch !== null && launch.launch !== shown) {
      if (file !== null) writeAll(file, writer);
      file = open(launch, shown === 0 ? options : { lines: null });
      if (file !== null) shown = launch.launch;
    }
    const ended = hasEnded(job); // looked at before the last read: nothing is written after the end
    if (file !== null) for (const chunk of file.read()) writer.write(chunk);
    else if (job.reason && job.reason !== waits && !isBegun(job)) options.note(`${job.job} waits: ${job.reason}`);
    waits = job.reason ?? waits;
    search.look(job);
    if (ended && (file === null || launch?.launch === shown)) break;
    await delay(LOOK_MS, undefined, { signal: options.signal }).catch(() => {});
    if (job.slurm != null && Date.now() - asked > SLURM_LOOK_MS) {
      asked = Date.now();
      await followSlurm(store);
    }
    const now = (await store.jobs.get(job.job)) ?? readForeground(job.job);
    if (presence.note(job.job, now)) job = now;
    if (isAway(job)) return followAway(store, job, options, writer);
  }
  file?.close();
  writer.end();
  options.signal.throwIfAborted();
  noteLost(job, pick(job, options.launch), options);
}

const isBegun = ({ state }: JobRecord): boolean => state === 'searching' || state === 'running';

type Launch = JobRecord['launches'][number];

function pick(job: JobRecord, wanted: number | null): Launch | null {
  if (job.slurm != null && wanted === null) return { launch: 1, dir: job.slurm.folder, purpose: 'run', config: null }; // one log, whatever Slurm started how often
  if (wanted === null) return job.launches.at(-1) ?? null;
  const launch = job.launches.find((one) => one.launch === wanted);
  if (launch !== undefined) return launch;
  throw usageError(
    `${job.job} has no launch ${wanted}.`,
    job.launches.length === 0 ? 'It has not been launched yet.' : `It has launches 1 to ${job.launches.length}.`,
  );
}

function open(launch: Launch | null, options: Pick<LogOptions, 'lines'>): LogFile | null {
  if (launch === null) return null;
  const file = new LogFile(launch.dir);
  if (options.lines !== null) file.seekTail(options.lines);
  return file;
}

/** Whether it is another host's, of which only the tail in Redis can be read. */
const isAway = (job: JobRecord): boolean => job.slurm == null && job.host !== null && job.host !== hostName();

/** Whether its folder was removed since it ended. */
function isGone(job: JobRecord, launch: Launch | null): boolean {
  return !isAway(job) && launch !== null && hasEnded(job) && !existsSync(launch.dir);
}

async function tailOf(store: Store, job: JobRecord, options: Pick<LogOptions, 'launch' | 'lines'>): Promise<Buffer> {
  const pieces = await store.logs.read(job.job);
  const wanted = options.launch ?? pieces.at(-1)?.launch ?? 1;
  const data = Buffer.concat(pieces.filter((piece) => piece.launch === wanted).map((piece) => piece.data));
  return options.lines === null ? data : lastLines(data, options.lines);
}

async function followAway(store: Store, job: JobRecord, options: LogOptions, writer: Writer): Promise<void> {
  options.note(`${job.job} runs on ${job.host}: the end of its output is shown.`);
  const presence = new Presence([job.job]);
  const search = new SearchFollow(options.note, options.paint);
  search.look(job);
  const ended = async () => {
    const now = await store.jobs.get(job.job);
    if (!presence.note(job.job, now)) return false;
    search.look(now);
    return hasEnded(now);
  };
  for await (const piece of store.logs.follow(job.job, { signal: options.signal, ended })) {
    if (options.launch !== null && piece.launch !== options.launch) continue;
    if (piece.skipped > 0) options.note(`${job.job}: ${piece.skipped} bytes left out`);
    writer.write(piece.data);
  }
  writer.end();
  options.signal.throwIfAborted();
}

function lastLines(data: Buffer, lines: number): Buffer {
  let at = data.length;
  for (let left = lines; left > 0 && at > 1; left -= 1) at = data.lastIndexOf(0x0a, at - 2) + 1;
  return lines === 0 ? Buffer.alloc(0) : data.subarray(at);
}

function writeAll(file: LogFile, writer: Writer): void {
  for (const chunk of file.read()) writer.write(chunk);
  file.close();
}

interface Writer {
  write(chunk: Buffer): void;
  end(): void;
}

function safe(writer: Writer): Writer {
  const text = new TerminalText(true);
  return {
    write: (chunk) => writer.write(text.take(chunk)),
    end() {
      writer.write(text.end());
      writer.end();
    },
  };
}

const raw = (write: LogOptions['write']): Writer => ({ write, end: () => {} });

/** Writes whole lines, so that those of several jobs do not mix. Works on bytes: a chunk may end inside a character. */
function prefixed(prefix: string, write: LogOptions['write']): Writer {
  const before = Buffer.from(prefix);
  const newline = Buffer.from('\n');
  let rest: Buffer = Buffer.alloc(0);
  const out = (line: Buffer) => write(Buffer.concat([before, line, newline]));
  return {
    write(chunk) {
      rest = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
      for (let at = rest.indexOf(0x0a); at >= 0; at = rest.indexOf(0x0a)) {
        out(rest.subarray(0, at));
        rest = rest.subarray(at + 1);
      }
      if (rest.length > LONGEST_LINE) {
        out(rest);
        rest = Buffer.alloc(0);
      }
    },
    end() {
      if (rest.length > 0) out(rest);
      rest = Buffer.alloc(0);
    },
  };
}

/** The job's name if it is unique among these, else its id. */
function label(job: JobRecord, jobs: JobRecord[]): string {
  return jobs.filter((other) => other.name === job.name).length === 1 ? job.name : job.job;
}
