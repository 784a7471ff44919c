import { existsSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { bootId, readStat } from '../common/process.js';
import { unusableFolder } from '../common/refusal.js';
import type { SupervisorRecord } from '../contract/launch.js';
import { isLocked } from './folder-lock.js';
import type { Addon } from './native.js';
import { readExit, readSupervisor } from './records.js';
import { SupervisedRun } from './run.js';
import { leavesTraces, supervisorOf, supervisorsOf } from './traces.js';
import type { Run } from './types.js';

/** A supervisor without a first record after this time counts as never started. */
const START_MS = 2000;
const LOOK_MS = 50;

/** The run of a launch folder, living or ended; null: nothing was started there. */
export async function adopt(addon: Addon, dir: string): Promise<Run | null> {
  const asked = Date.now();
  for (;;) {
    const record = readSupervisor(dir);
    if (record === 'torn') return new SupervisedRun(addon, dir, recordOf(dir));
    if (record !== null) return new SupervisedRun(addon, dir, record);
    // The launcher may have died a moment ago, while the supervisor was starting.
    const spec = statSync(join(dir, 'spec'), { throwIfNoEntry: false });
    if (!spec && readSupervisor(dir) !== null) continue; // it came between the two looks
    if (!spec) {
      const onItsWay = supervisorsOf(dir).length > 0 && Date.now() - asked < START_MS;
      if (!onItsWay) return withoutRecord(addon, dir);
      await sleep(LOOK_MS);
      continue;
    }
    const late = asked - spec.mtimeMs > 10 * START_MS || Date.now() - asked > START_MS;
    if (late && !isLocked(dir)) {
      const last = readSupervisor(dir); // it may have come between the two looks
      if (last === null || last === 'torn') return withoutRecord(addon, dir);
      return new SupervisedRun(addon, dir, last);
    }
    await sleep(LOOK_MS);
  }
}

/**
 * The run of a supervisor that said it was there and left no record. One that was killed has left the spec, which it
 * removes whatever else fails; without it the folder takes no files (OOMTUNE_HOME_UNUSABLE).
 */
export function lostStart(addon: Addon, dir: string): Run {
  const spec = join(dir, 'spec');
  if (!existsSync(spec)) throw unusableFolder(dir, new Error('the supervisor left no record in it'));
  rmSync(spec);
  return new SupervisedRun(addon, dir, recordOf(dir));
}

/** For a folder that was emptied, removed or never used: finds what runs by other means. */
function withoutRecord(addon: Addon, dir: string): Run | null {
  const known = readExit(dir) !== null || leavesTraces(dir);
  return known ? new SupervisedRun(addon, dir, recordOf(dir)) : null;
}

/** Replaces a lost record by what can be seen of the supervisor; without one, by a record of none. */
function recordOf(dir: string): SupervisorRecord {
  const pid = supervisorOf(dir);
  const stat = pid === null ? null : readStat(pid);
  return {
    schema: 1,
    pid: pid !== null && stat !== null ? pid : 2 ** 31 - 1,
    start_time: stat?.startTime ?? 0,
    job_pid: null,
    job_start_time: null,
    cgroup: null,
    boot_id: bootId(),
    started_at: new Date().toISOString(),
    timeout_ms: 0,
    grace_ms: 10_000,
    version: '',
  };
}
