import type { Output } from './output.js';
import { facts } from './table.js';

/** Tells of something that may run: what is known of it, or what to do where it does not. */
export function tellStatus(out: Output, status: { running: boolean }, otherwise: string): void {
  if (out.json) out.document({ schema: 1, ...status });
  else if (!status.running) out.data(`not running; ${otherwise}`);
  else {
    const known = Object.entries(status).map(([name, value]): [string, string | null] => [
      name,
      value === null ? null : String(value),
    ]);
    out.data(facts(known, ''));
  }
}
