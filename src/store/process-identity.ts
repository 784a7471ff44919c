import { readlinkSync } from 'node:fs';
import { hostname } from 'node:os';
import { bootId, hasEnded, readStat } from '../common/process.js';

/** Unlike a pid alone, a pid with its start time is never used again. */
export interface ProcessIdentity {
  pid: number;
  /** Clock ticks since boot: field 22 of /proc/PID/stat. */
  start: string;
}

/** The start time of a living process; null: none, or a zombie. */
export function startTime(pid: number): string | null {
  const stat = readStat(pid);
  return stat === null || hasEnded(stat) ? null : String(stat.startTime);
}

/** Null: it has ended. */
export function processOf(pid: number): ProcessIdentity | null {
  const start = startTime(pid);
  return start === null ? null : { pid, start };
}

let own: ProcessIdentity | null = null;

export function thisProcess(): ProcessIdentity {
  own ??= { pid: process.pid, start: startTime(process.pid) ?? '0' };
  return own;
}

export const isAlive = ({ pid, start }: ProcessIdentity): boolean => startTime(pid) === start;

/** This machine's name among the hosts: OOMTUNE_HOST, else the host name. */
export const hostName = (): string => process.env.OOMTUNE_HOST || hostname();

let scope: string | null = null;

/** The scope of a pid: `<boot id>/<inode of the pid namespace>`. */
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
