import { readdirSync } from 'node:fs';
import { systemText } from './regular-file.js';

interface ProcessStat {
  state: string;
  parent: number;
  /** Clock ticks since boot: with the pid it names a process for good, until the next boot. */
  startTime: number;
  /** PF_* of the kernel. */
  flags: number;
}

/** Null if there is no such process. `pid`: also `PID/task/TID`, for one of its threads. */
export function readStat(pid: number | string): ProcessStat | null {
  const text = systemText(`/proc/${pid}/stat`);
  if (text === '') return null;
  // The name in parentheses may contain blanks and parentheses.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  return { state: fields[0] ?? '', parent: Number(fields[1]), flags: Number(fields[6]), startTime: Number(fields[19]) };
}

/** A zombie has ended. */
export const hasEnded = (stat: ProcessStat): boolean => stat.state === 'Z' || stat.state === 'X';

/** True if the process with this pid and start time exists and has not ended. */
export function processLives(pid: number, startTime: number): boolean {
  const stat = readStat(pid);
  return stat !== null && stat.startTime === startTime && !hasEnded(stat);
}

/** A variable of the environment that the process was started with; null: unset or unreadable. */
export function environmentOf(pid: number, name: string): string | null {
  const entry = systemText(`/proc/${pid}/environ`)
    .split('\0')
    .find((part) => part.startsWith(`${name}=`));
  return entry === undefined ? null : entry.slice(name.length + 1);
}

export function pids(): number[] {
  return readdirSync('/proc')
    .filter((entry) => /^\d+$/.test(entry))
    .map(Number);
}

/** Changes with every boot. Empty where the kernel does not tell. */
export const bootId = (): string => systemText('/proc/sys/kernel/random/boot_id').trim();
