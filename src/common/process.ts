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
  // The name, in parentheses, may hold blanks and parentheses itself.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  return { state: fields[0] ?? '', parent: Number(fields[1]), flags: Number(fields[6]), startTime: Number(fields[19]) };
}

/** A zombie has ended: only its exit status is still there. */
export function hasEnded(stat: ProcessStat): boolean {
  return stat.state === 'Z' || stat.state === 'X';
}

/** Changes with every boot of the machine. Empty where the kernel does not tell. */
export const bootId = (): string => systemText('/proc/sys/kernel/random/boot_id').trim();
