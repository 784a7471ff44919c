import type { VerbDocuments } from '../contract/verbs.js';
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
