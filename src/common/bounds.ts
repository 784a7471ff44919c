import { usageError } from './errors.js';
import { parseSpan } from './span.js';

const LONGEST_START_S = 120;
/** What Slurm and Kubernetes leave between TERM and KILL (30 s), but for what it takes to end what is left and to write the record. */
const GRACE_S = 25;
/** After its grace. */
const LONGEST_END_S = 35;
/** A quarter of an hour. */
const LONG_WAIT_S = 900;
/** What a timer can count. */
const MOST_S = 1_000_000;

/** Variables that are times, and the least of each: a start of no time is none. */
const LEAST = {
  OOMTUNE_START_SECONDS: Number.MIN_VALUE,
  OOMTUNE_GRACE_SECONDS: 0,
  OOMTUNE_END_SECONDS: 0,
  OOMTUNE_NOTIFY_WAIT_SECONDS: 0,
  OOMTUNE_RESTART_SECONDS: 0,
};
type Variable = keyof typeof LEAST;

/** Seconds of a variable: a number, or a time with its unit; null: it is not set, or no such time. */
export function secondsOf(name: Variable, environment: NodeJS.ProcessEnv = process.env): number | null {
  const given = environment[name]?.trim();
  if (!given) return null;
  const seconds = Number.isFinite(Number(given)) ? Number(given) : parseSpan(given);
  return seconds !== null && seconds >= LEAST[name] && seconds <= MOST_S ? seconds : null;
}

/** Asked once, before anything is begun: whoever wants more time to save does not get less for a slip. Throws OOMTUNE_USAGE. */
export function checkSeconds(environment: NodeJS.ProcessEnv = process.env): void {
  for (const name of Object.keys(LEAST) as Variable[])
    if (environment[name]?.trim() && secondsOf(name, environment) === null)
      throw usageError(
        `Expected ${name} to be a time such as 90, 90s or 5m, got "${environment[name]}".`,
        `Write such a time of at most ${MOST_S} seconds, or unset ${name}.`,
      );
}

/** The most that a start may take, in ms, with all checks before it: `OOMTUNE_START_SECONDS`. */
export function longestStartMs(environment: NodeJS.ProcessEnv = process.env): number {
  return 1000 * (secondsOf('OOMTUNE_START_SECONDS', environment) ?? LONGEST_START_S);
}

/** How long a job that is asked to end may take to save what it has, in s: `OOMTUNE_GRACE_SECONDS`. */
export function graceSeconds(environment: NodeJS.ProcessEnv = process.env): number {
  return secondsOf('OOMTUNE_GRACE_SECONDS', environment) ?? GRACE_S;
}

/** The most that a killed job may take to be gone, in ms, its grace included: `OOMTUNE_END_SECONDS`. */
export function longestEndMs(environment: NodeJS.ProcessEnv = process.env): number {
  return 1000 * (secondsOf('OOMTUNE_END_SECONDS', environment) ?? LONGEST_END_S + graceSeconds(environment));
}

/** A job that waits for longer is told of, in ms: `OOMTUNE_NOTIFY_WAIT_SECONDS`. */
export function longWaitMs(environment: NodeJS.ProcessEnv = process.env): number {
  return 1000 * (secondsOf('OOMTUNE_NOTIFY_WAIT_SECONDS', environment) ?? LONG_WAIT_S);
}
