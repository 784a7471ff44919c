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
        reason: told(reason),
        nodes: told(nodes),
        partition,
        startedAt: /^\d+$/.test(started) ? Number(started) : null,
        exitCode: null,
        script: script.join('|'),
      },
    ];
  });
}

export const ACCOUNTING_FIELDS = 'JobID,State,ExitCode,DerivedExitCode,Start,NodeList,Partition,Reason';

/** The lines of `sacct --noheader --parsable2 --allocations`, by job (`123`, `123_4`). A job that ran more than once stands last as it is. */
export function accountingRows(text: string): Map<string, SlurmRow> {
  const rows = new Map<string, SlurmRow>();
  for (const line of text.split('\n')) {
    const [id = '', said = '', exit = '', ofSteps = '', started = '', ...where] = line.split('|');
    const [nodes = '', partition = '', reason = ''] = where.map(told);
    if (!/^\d+(_\d+)?$/.test(id)) continue;
    const state = said.split(' ')[0] as string; // `CANCELLED by 1000`
    rows.set(id, {
      state,
      reason,
      nodes,
      partition,
      startedAt: /^\d+$/.test(started) ? Number(started) : null,
      // of one that was cancelled it is 0:0, whatever it would have ended with
      exitCode: state === 'CANCELLED' ? null : wholeCode(exitCode(exit), exitCode(ofSteps)),
    });
  }
  return rows;
}

/** Of `scontrol show job --oneliner`: its exit code, which no listing tells. */
export const exitCodeIn = (text: string): number | null => exitCode(/ ExitCode=(\d+:\d+)/.exec(text)?.[1] ?? '');

/** `3:0` is exit code 3, `0:9` signal 9. `0:125` is none: so Slurm says that memory ran out. */
function exitCode(text: string): number | null {
  const [, code, signal] = /^(\d+):(\d+)$/.exec(text) ?? [];
  if (code === undefined || signal === undefined || Number(signal) > MOST_SIGNALS) return null;
  return Number(signal) > 0 && Number(code) === 0 ? 128 + Number(signal) : Number(code);
}

const MOST_SIGNALS = 64;

/** Accounts leave 128 out of a script's exit code (143 is `15:0`), and not of its steps'. */
const wholeCode = (code: number | null, ofSteps: number | null): number | null =>
  code !== null && ofSteps === code + 128 ? ofSteps : code;

export const rowOf = (rows: QueueRow[], place: SlurmPlace): QueueRow | null =>
  rows.find(
    (row) => row.script === place.script && row.task === place.task && (place.id === null || row.id === place.id),
  ) ?? null;

export const accountOf = (rows: Map<string, SlurmRow>, place: SlurmPlace): SlurmRow | null =>
  rows.get(slurmId(place) ?? '') ?? null;

const told = (text: string): string => (/^(None|\(null\)|N\/A|None assigned|Unknown)?$/.test(text) ? '' : text);
