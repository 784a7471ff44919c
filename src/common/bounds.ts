const LONGEST_START_S = 120;
/** What Slurm and Kubernetes leave between TERM and KILL (30 s), but for what it takes to end what is left and to write the record. */
const GRACE_S = 25;
/** After its grace. */
const LONGEST_END_S = 35;
/** A quarter of an hour. */
const LONG_WAIT_S = 900;

function secondsOf(given: string | undefined, otherwise: number): number {
  return given && Number.isFinite(Number(given)) && Number(given) > 0 ? Number(given) : otherwise;
}

/** The most that a start may take, in ms, with all checks before it: `OOMTUNE_START_SECONDS`. */
export function longestStartMs(environment: NodeJS.ProcessEnv = process.env): number {
  return 1000 * secondsOf(environment.OOMTUNE_START_SECONDS, LONGEST_START_S);
}

/** How long a job that is asked to end may take to save what it has, in s: `OOMTUNE_GRACE_SECONDS`. */
export function graceSeconds(environment: NodeJS.ProcessEnv = process.env): number {
  return secondsOf(environment.OOMTUNE_GRACE_SECONDS, GRACE_S);
}

/** The most that a killed job may take to be gone, in ms, its grace included: `OOMTUNE_END_SECONDS`. */
export function longestEndMs(environment: NodeJS.ProcessEnv = process.env): number {
  return 1000 * secondsOf(environment.OOMTUNE_END_SECONDS, LONGEST_END_S + graceSeconds(environment));
}

/** A job that waits for longer is told of, in ms: `OOMTUNE_NOTIFY_WAIT_SECONDS`. */
export function longWaitMs(environment: NodeJS.ProcessEnv = process.env): number {
  return 1000 * secondsOf(environment.OOMTUNE_NOTIFY_WAIT_SECONDS, LONG_WAIT_S);
}
