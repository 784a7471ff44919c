import { type SlurmPlace, slurmId } from '../../contract/slurm.js';

/** What Slurm says of a job. */
export interface SlurmRow {
  /** `PENDING`, `RUNNING`, `CANCELLED`. */
  state: string;
  /** Why it waits or ended, in Slurm's words; empty: nothing. */
  reason: string;
  nodes: string;
  partition: string;
  /** Seconds since 1970; null: it has not started. */
  startedAt: number | null;
  /** Null: not told. */
  exitCode: number | null;
}

/** A row of the queue, with what tells whose it is. */
export interface QueueRow extends SlurmRow {
  id: string;
  task: number | null;
  script: string;
}

/** A script's path may hold anything but a line's end; it stands last. */
export const QUEUE_FORMAT = '%F|%K|%T|%r|%N|%P|%S|%o';

/** The lines of `squeue --noheader --array --format`. */
export function queueRows(text: string): QueueRow[] {
  return text.split('\n').flatMap((line) => {
    const [id = '', task = '', state = '', reason = '', nodes = '', partition = '', started = '', ...script] =
      line.split('|');
    if (!/^\d+$/.test(id)) return [];
    return [
      {
        id,
        task: /^\d+$/.test(task) ? Number(task) : null,
        state,
        reason: said(reason),
        nodes: said(nodes),
        partition,
        startedAt: /^\d+$/.test(started) ? Number(started) : null,
        exitCode: null,
        script: script.join('|'),
      },
    ];
  });
}

export const ACCOUNTING_FIELDS = 'JobID,State,ExitCode,Start,NodeList,Partition,Reason';

/** The lines of `sacct --noheader --parsable2 --allocations`, by job (`123`, `123_4`). A job that ran more than once stands last as it is. */
export function accountingRows(text: string): Map<string, SlurmRow> {
  const rows = new Map<string, SlurmRow>();
  for (const line of text.split('\n')) {
    const [id = '', state = '', exit = '', started = '', nodes = '', partition = '', reason = ''] = line.split('|');
    if (!/^\d+(_\d+)?$/.test(id)) continue;
    rows.set(id, {
      state: state.split(' ')[0] as string, // `CANCELLED by 1000`
      reason: said(reason),
      nodes: said(nodes),
      partition,
      startedAt: /^\d+$/.test(started) ? Number(started) : null,
      exitCode: exitCode(exit),
    });
  }
  return rows;
}

/** Of `scontrol show job --oneliner`: its exit code, which no listing tells. */
export const exitCodeIn = (text: string): number | null => exitCode(/ ExitCode=(\d+:\d+)/.exec(text)?.[1] ?? '');

/** `3:0` is exit code 3, `0:9` signal 9. */
function exitCode(text: string): number | null {
  const [, code, signal] = /^(\d+):(\d+)$/.exec(text) ?? [];
  if (code === undefined || signal === undefined) return null;
  return Number(signal) > 0 && Number(code) === 0 ? 128 + Number(signal) : Number(code);
}

export const rowOf = (rows: QueueRow[], place: SlurmPlace): QueueRow | null =>
  rows.find(
    (row) => row.script === place.script && row.task === place.task && (place.id === null || row.id === place.id),
  ) ?? null;

export const accountOf = (rows: Map<string, SlurmRow>, place: SlurmPlace): SlurmRow | null =>
  rows.get(slurmId(place) ?? '') ?? null;

const said = (text: string): string => (/^(None|\(null\)|N\/A|None assigned|Unknown)?$/.test(text) ? '' : text);
