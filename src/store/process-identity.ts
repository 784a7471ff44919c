import { readFileSync, readlinkSync } from 'node:fs';
import { hostname } from 'node:os';

/** A process that cannot be mistaken for another: pids are used again, a pid and its start time are not. */
export interface ProcessIdentity {
  pid: number;
  /** Clock ticks since boot: field 22 of /proc/PID/stat. */
  start: string;
}

/** The start time of a living process; null when there is none of that pid, or only its zombie. */
export function startTime(pid: number): string | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' '); // the name may hold spaces and brackets
    return fields[0] === 'Z' || fields[0] === 'X' ? null : (fields[19] ?? null);
  } catch {
    return null;
  }
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

let boot: string | null = null;

/** Changes with every boot of the machine, and differs between pid namespaces: pids of another world say nothing here. */
export function bootId(): string {
  if (boot === null) {
    try {
      const id = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
      boot = `${id}/${/\d+/.exec(readlinkSync('/proc/self/ns/pid'))?.[0] ?? ''}`;
    } catch {
      boot = 'unknown';
    }
  }
  return boot;
}
