import { readdirSync } from 'node:fs';
import { hasEnded, readStat } from '../common/process.js';
import { systemText } from '../common/regular-file.js';

/** True if the process with this pid and start time exists and has not ended. */
export function processLives(pid: number, startTime: number): boolean {
  const stat = readStat(pid);
  return stat !== null && stat.startTime === startTime && !hasEnded(stat);
}

/** A variable of the environment that the process was started with; null: not readable, or not set. */
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
