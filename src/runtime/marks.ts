import { environmentOf, hasEnded, pids, readStat } from '../common/process.js';
import { systemText } from '../common/regular-file.js';
import { RUN_MARK } from '../devices/process.js';

/** The resource limit that marks a launch's processes (native/supervisor/job.cpp). */
function limitOf(dir: string): string {
  let hash = 0xcbf29ce484222325n; // FNV-1a
  for (const byte of Buffer.from(dir)) hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n);
  return String((1n << 62n) | (hash >> 3n));
}

/** Living processes of a launch. */
export function processesOf(dir: string): number[] {
  return markedProcesses(dir).filter((pid) => {
    const stat = readStat(pid);
    return stat !== null && !hasEnded(stat);
  });
}

/** Processes of a launch, by its folder in their environment, or by an inherited resource limit where that is empty. */
export function markedProcesses(dir: string): number[] {
  const limit = new RegExp(`^Max realtime timeout\\s+${limitOf(dir)}\\b`, 'm');
  return pids().filter(
    (pid) =>
      pid !== process.pid && (environmentOf(pid, RUN_MARK) === dir || limit.test(systemText(`/proc/${pid}/limits`))),
  );
}
