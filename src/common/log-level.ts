import { usageError } from './errors.js';

const LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'];

/** A daemon has nobody beside it, and logs more. */
let usual = 'warn';

/** What this process logs where OOMTUNE_LOG does not say. */
export function logUsually(level: string): void {
  usual = level;
}

/** The level that `OOMTUNE_LOG` sets, in letters of any case. Throws OOMTUNE_USAGE. */
export function logLevel(otherwise = usual, environment: NodeJS.ProcessEnv = process.env): string {
  const given = environment.OOMTUNE_LOG || otherwise;
  const level = given.toLowerCase();
  if (LEVELS.includes(level)) return level;
  throw usageError(
    `Expected OOMTUNE_LOG to be one of ${LEVELS.join(', ')}, got "${given}".`,
    `Choose one, or unset OOMTUNE_LOG to use "${otherwise}".`,
  );
}
