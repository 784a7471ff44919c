/** Processes that were killed and are still there: the kernel holds on to them, and nothing can end them. */
import { hasEnded, readStat } from '../common/process.js';
import { namesIn, systemText } from '../common/regular-file.js';
import { markedFor } from './marks.js';

/** As a bit of SigPnd in /proc/PID/status. */
const KILLED = 1n << 8n;
/** As a bit of the flags in /proc/PID/stat: it is on its way out. */
const EXITING = 4;

export interface StuckProcess {
  pid: number;
  name: string;
}

/** Those of a launch that are on their way out just now: after a moment most are gone, and what stays is stuck. */
export function dyingOf(dir: string): StuckProcess[] {
  return markedFor(dir)
    .filter((pid) => !dumpsCore(pid) && tasksOf(pid).some(isDying))
    .map((pid) => ({ pid, name: systemText(`/proc/${pid}/comm`).trim() }));
}

/** That may take long, and comes to an end. */
const dumpsCore = (pid: number): boolean => /^CoreDumping:\s*1$/m.test(systemText(`/proc/${pid}/status`));

/** Its threads: the first may have ended while another is stuck. */
const tasksOf = (pid: number): string[] => namesIn(`/proc/${pid}/task`).map((task) => `/proc/${pid}/task/${task}`);

function isDying(task: string): boolean {
  const stat = readStat(task.slice('/proc/'.length));
  if (stat === null || hasEnded(stat)) return false;
  if ((stat.flags & EXITING) !== 0) return true;
  const pending = /^SigPnd:\s*([0-9a-f]+)$/m.exec(systemText(`${task}/status`))?.[1];
  return pending !== undefined && (BigInt(`0x${pending}`) & KILLED) !== 0n;
}
