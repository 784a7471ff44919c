const LONGEST_START_S = 120;
const LONGEST_END_S = 60;
/** A quarter of an hour. */
const LONG_WAIT_S = 900;

function secondsOf(given: string | undefined, otherwise: number): number {
  return given && Number.isFinite(Number(given)) && Number(given) > 0 ? Number(given) : otherwise;
}

/** The most that a start may take, in ms, with all checks before it: `OOMTUNE_START_SECONDS`. */
export function longestStartMs(environment: NodeJS.ProcessEnv = process.env): number {
  return 1000 * secondsOf(environment.OOMTUNE_START_SECONDS, LONGEST_START_S);
}

/** The most that a killed job may take to be gone, in ms, its grace included: `OOMTUNE_END_SECONDS`. */
export function longestEndMs(environment: NodeJS.ProcessEnv = process.env): number {
  return 1000 * secondsOf(environment.OOMTUNE_END_SECONDS, LONGEST_END_S);
}

/** A job that waits for longer is told of, in ms: `OOMTUNE_NOTIFY_WAIT_SECONDS`. */
export function longWaitMs(environment: NodeJS.ProcessEnv = process.env): number {
  return 1000 * secondsOf(environment.OOMTUNE_NOTIFY_WAIT_SECONDS, LONG_WAIT_S);
}
