/** Processes that were killed but stay, because the kernel waits in them for a device or file system. */
import { hasEnded, readStat } from '../common/process.js';
import { namesIn, systemText } from '../common/regular-file.js';
import { markedProcesses } from './marks.js';

/** A bit of SigPnd in /proc/PID/status. */
const KILLED = 1n << 8n;
/** PF_EXITING, a bit of the flags in /proc/PID/stat. */
const EXITING = 4;

export interface StuckProcess {
  pid: number;
  name: string;
}

/** Processes of a launch that are dying; those that stay so are stuck. */
export function dyingProcesses(dir: string): StuckProcess[] {
  return markedProcesses(dir)
    .filter((pid) => !dumpsCore(pid) && tasksOf(pid).some(isDying))
    .map((pid) => ({ pid, name: systemText(`/proc/${pid}/comm`).trim() }));
}

/** A core dump may take long, but ends. */
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
