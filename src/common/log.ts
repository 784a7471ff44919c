import { writeSync } from 'node:fs';
import { pino } from 'pino';
import { usageError } from './errors.js';

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

const LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'];

/** The level that `OOMTUNE_LOG` sets, in letters of any case. Throws OOMTUNE_USAGE. */
export function logLevel(otherwise = 'warn', environment: NodeJS.ProcessEnv = process.env): string {
  const given = environment.OOMTUNE_LOG || otherwise;
  const level = given.toLowerCase();
  if (LEVELS.includes(level)) return level;
  throw usageError(
    `Expected OOMTUNE_LOG to be one of ${LEVELS.join(', ')}, got "${given}".`,
    `Choose one, or unset OOMTUNE_LOG to use "${otherwise}".`,
  );
}

/** The diagnostic log: JSON lines on stderr. `OOMTUNE_LOG` sets the level. Never log values of environment variables. */
export function createLog(component: string, level = logLevel()) {
  return pino({ name: 'oomtune', level, base: { component, pid: process.pid } }, lines);
}

export type Log = ReturnType<typeof createLog>;
