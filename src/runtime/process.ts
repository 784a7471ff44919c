import { readdirSync, readFileSync } from 'node:fs';

export interface ProcessStat {
  state: string;
  parent: number;
  /** Clock ticks since boot: with the pid it names a process for good, until the next boot. */
  startTime: number;
}

/** Null: there is no such process. */
export function readStat(pid: number): ProcessStat | null {
  let text: string;
  try {
    text = readFileSync(`/proc/${pid}/stat`, 'latin1');
  } catch {
    return null;
  }
  // The name, in parentheses, may hold blanks and parentheses itself.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  return { state: fields[0] ?? '', parent: Number(fields[1]), startTime: Number(fields[19]) };
}

/** Is the process with this pid and start time at work? A zombie is not. */
export function processLives(pid: number, startTime: number): boolean {
  const stat = readStat(pid);
  return stat !== null && stat.startTime === startTime && stat.state !== 'Z' && stat.state !== 'X';
}

export function bootId(): string {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  } catch {
    return '';
  }
}

/** A variable of the environment that the process was started with; null: not readable, or not set. */
export function environmentOf(pid: number, name: string): string | null {
  let text: string;
  try {
    text = readFileSync(`/proc/${pid}/environ`, 'utf8');
  } catch {
    return null;
  }
  const entry = text.split('\0').find((part) => part.startsWith(`${name}=`));
  return entry === undefined ? null : entry.slice(name.length + 1);
}

export function pids(): number[] {
  return readdirSync('/proc')
    .filter((entry) => /^\d+$/.test(entry))
    .map(Number);
}

/** Living processes whose environment carries `name=value`. */
export function processesWith(name: string, value: string): number[] {
  return pids().filter((pid) => {
    if (pid === process.pid || environmentOf(pid, name) !== value) return false;
    const state = readStat(pid)?.state;
    return state !== undefined && state !== 'Z' && state !== 'X';
  });
}
