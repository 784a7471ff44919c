import { writeSync } from 'node:fs';
import { pino } from 'pino';
import { logLevel } from './log-level.js';

const STDERR = 2;

let lost = 0;

/** Writes lines to stderr. If that fails (full disk, closed pipe) it counts what is lost, and says so when it can write again. */
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

/** The diagnostic log: JSON lines on stderr. `OOMTUNE_LOG` sets the level. Never log values of environment variables. */
export function createLog(component: string, level = logLevel()) {
  return pino({ name: 'oomtune', level, base: { component, pid: process.pid } }, lines);
}

export type Log = ReturnType<typeof createLog>;
