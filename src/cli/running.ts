import type { DaemonStatus, VerbDocuments } from '../contract/verbs.js';
import type { Output } from './output.js';
import { facts } from './table.js';

/** Prints the status of a service, or how to start it. */
export function printStatus<D extends 'daemon-status' | 'redis-status'>(
  out: Output,
  verb: D,
  status: VerbDocuments[D],
  otherwise: string,
): void {
  const { schema: _, ...shown } = status;
  if (out.json) out.document(verb, status);
  else if (!status.running) out.data(`not running; ${otherwise}`);
  else {
    const known = Object.entries(shown).map(([name, value]): [string, string | null] => [
      name,
      value === null ? null : String(value),
    ]);
    out.data(facts(known, ''));
  }
}

/** Tells who started a daemon what runs now. */
export function sayStarted(out: Output, status: DaemonStatus): void {
  out.note(`daemon runs, pid ${status.pid} on ${status.host}`);
  if (status.dashboard !== null) out.note('`oomtune dashboard` prints the address of its dashboard');
  else if (status.dashboard_fault !== null) {
    out.note(`note: it has no dashboard and no metrics (${status.dashboard_fault}); start it with another --http-port`);
  }
  if (process.getuid?.() === 0) out.note('note: it runs as root, and so will the jobs');
}
