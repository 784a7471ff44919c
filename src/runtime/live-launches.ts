import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { bootId, processLives } from '../common/process.js';
import { processesOf } from './marks.js';
import { readSupervisor } from './records.js';

/** A launch whose supervisor, or whose job's first process, lives. */
export interface LiveLaunch {
  job: string;
  dir: string;
}

/** All living launches of this machine below `runs` (`<job>/<launch>/supervisor.json`). */
export function liveLaunches(runs: string): LiveLaunch[] {
  if (!existsSync(runs)) return [];
  return folders(runs).flatMap((job) =>
    folders(join(runs, job))
      .map((launch) => ({ job, dir: join(runs, job, launch) }))
      .filter(({ dir }) => lives(dir)),
  );
}

function lives(dir: string): boolean {
  try {
    const record = readSupervisor(dir);
    if (record === null) return false;
    if (record === 'torn') return processesOf(dir).length > 0;
    if (record.boot_id !== bootId()) return false;
    if (processLives(record.pid, record.start_time)) return true;
    return record.job_pid !== null && processLives(record.job_pid, record.job_start_time ?? 0);
  } catch {
    return false; // not one of ours, or half of one
  }
}

const folders = (path: string): string[] =>
  readdirSync(path, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map((entry) => entry.name);
