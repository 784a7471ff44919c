import { basename, join } from 'node:path';
import { homePath } from '../common/home.js';
import { environmentOf } from '../common/process.js';
import { systemText } from '../common/regular-file.js';
import type { DeviceProcess } from '../contract/launch.js';

/** The launch folder, in the environment of every job. */
export const RUN_MARK = 'OOMTUNE_RUN_DIR';
const JOB_MARK = 'OOMTUNE_JOB_ID';

/** A process that holds memory of a device. `name`: the driver's; empty: take the kernel's. */
export function deviceProcess(pid: number, name: string, usedBytes: number): DeviceProcess {
  const ours = environmentOf(pid, RUN_MARK)?.startsWith(join(homePath(), 'runs', '/')) ?? false;
  const job = environmentOf(pid, JOB_MARK);
  const program = name ? basename(name.split(' ')[0] ?? name) : systemText(`/proc/${pid}/comm`).trim();
  return { pid, name: program, used_bytes: usedBytes, ours, job };
}
