import { readlinkSync } from 'node:fs';
import { hostname } from 'node:os';
import { bootId, hasEnded, readStat } from '../common/process.js';

/** A process that cannot be mistaken for another: pids are used again, a pid and its start time are not. */
export interface ProcessIdentity {
  pid: number;
  /** Clock ticks since boot: field 22 of /proc/PID/stat. */
  start: string;
}

/** The start time of a living process; null when there is none of that pid, or only its zombie. */
export function startTime(pid: number): string | null {
  const stat = readStat(pid);
  return stat === null || hasEnded(stat) ? null : String(stat.startTime);
}

let own: ProcessIdentity | null = null;

export function thisProcess(): ProcessIdentity {
  own ??= { pid: process.pid, start: startTime(process.pid) ?? '0' };
  return own;
}

export function isAlive({ pid, start }: ProcessIdentity): boolean {
  return startTime(pid) === start;
}

/** The name that this machine has among its fellows: OOMTUNE_HOST, else the host name. */
export function hostName(): string {
  return process.env.OOMTUNE_HOST || hostname();
}

let scope: string | null = null;

/** Where a pid means something: this boot of this machine and this pid namespace, as `<boot id>/<namespace's inode>`. */
export function pidScope(): string {
  scope ??= `${bootId() || 'unknown'}/${pidNamespace()}`;
  return scope;
}

function pidNamespace(): string {
  try {
    return /\d+/.exec(readlinkSync('/proc/self/ns/pid'))?.[0] ?? '';
  } catch {
    return '';
  }
}
