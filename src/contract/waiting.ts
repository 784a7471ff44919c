/** Why a job has not begun: the words that its record carries, and what is read from them. Records keep words and no codes, so both stand here. */

/** Nobody is there to take it. */
export const NO_DAEMON = 'waits for a daemon';
/** It is in its queue, and nobody has looked at it since. */
export const IN_QUEUE = 'waits in its queue';

const NO_DAEMON_ON = 'no daemon runs on ';
const NO_HOST_HAS = 'no host has ';
const TURN = 'waits for its turn, ';
const JOBS = / to (succeed|end)$|of its sweep$|of its array to end/;

/** The host that it is for has no daemon. `hosts`: those that do. */
export const noDaemonOn = (host: string, hosts: string): string => `${NO_DAEMON_ON}${host}; there are ${hosts}`;

/** No daemon's host has the devices that it asks for. `silent`: hosts that are not heard, which may have them; empty: none. */
export const noHostHas = (what: string, hosts: string, silent = ''): string =>
  `${NO_HOST_HAS}${what}; there are ${hosts}${silent === '' ? '' : `; not heard, and may have it: ${silent}`}`;

/** Nothing can be written of it, and a daemon cannot say that it lives. */
export const takesNoWrites = (why: string, remedy: string): string =>
  `Redis takes no writes: ${why}. ${remedy.replace(/\.$/, '')}`;

/** Its hosts are busy. */
export const inQueueFor = (hosts: string, busyWith: string): string => `${IN_QUEUE} for ${hosts}${busyWith}`;

/** It stands still until another job has ended. */
export const waitsForTurn = (until: string): string => `${TURN}${until}`;

/** The states of jobs that it comes after: `j-1 (running) to succeed`. */
export const waitsForJobs = (jobs: string[]): string => `waits for ${jobs.join(', and for ')}`;

export const waitsForSweep = (first: string): string =>
  `waits for ${first}, whose configuration is for all jobs of its sweep`;

export const waitsForArray = (atOnce: number): string =>
  `waits for another job of its array to end: ${atOnce} may run at a time`;

type Reason = string | null;

/** What the dispatcher says of a job that it keeps out of its queue. */
export const isForJobs = (reason: Reason): boolean => JOBS.test(reason ?? '');
export const isForDaemon = (reason: Reason): boolean => reason?.startsWith(NO_DAEMON) === true;
export const isForTurn = (reason: Reason): boolean => reason?.startsWith(TURN) === true;
export const isInQueue = (reason: Reason): boolean => reason?.startsWith(IN_QUEUE) === true;
export const isForHost = (reason: Reason): boolean => reason?.startsWith(NO_HOST_HAS) === true;

/** What has to be started so that it begins; null: it waits for its turn. `host`: where it is to run, if that was asked for. */
export function startHelp(reason: Reason, host: string | null): string | null {
  if (isForDaemon(reason)) return `\`oomtune daemon start\`${host === null ? '' : ` on ${host}`} starts one`;
  if (isForHost(reason)) return 'Start a daemon on a host that has it (`oomtune daemon start`)';
  return reason?.startsWith(NO_DAEMON_ON) ? 'Start one there (`oomtune daemon start`)' : null;
}
