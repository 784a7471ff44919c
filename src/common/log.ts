import { writeSync } from 'node:fs';
import { pino } from 'pino';

const STDERR = 2;

let lost = 0;

/**
 * Writes lines to stderr, and lives when that cannot be written to: a full disk or a reader that is gone must not end what is
 * logged about. What is lost is counted, and told when there is room again.
 */
const lines = {
  write(line: string): void {
    try {
      if (lost > 0)
        put(`${JSON.stringify({ level: 40, name: 'oomtune', lost, msg: 'lines of this log were lost' })}\n`);
      lost = 0;
      put(line);
    } catch {
      lost += 1; // there is nowhere to say it
    }
  },
};

function put(text: string): void {
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; ) at += writeSync(STDERR, bytes, at);
}

/**
 * The diagnostic log: JSON lines on stderr, never on stdout, which belongs to data. `OOMTUNE_LOG` sets the level
 * (default `warn` for commands; the daemon sets `info`). Values of environment variables never go in.
 */
export function createLog(component: string, level = process.env.OOMTUNE_LOG || 'warn') {
  return pino({ name: 'oomtune', level, base: { component, pid: process.pid } }, lines);
}

export type Log = ReturnType<typeof createLog>;
