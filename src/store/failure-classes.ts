import type { FailureClass } from '../tuner/types.js';

/** A record, as that has to name each of them. */
const ALL: Record<FailureClass, true> = {
  device_oom: true,
  host_oom: true,
  shm: true,
  disk_full: true,
  network: true,
  device_fault: true,
  user_error: true,
  timeout: true,
  killed: true,
  cancelled: true,
};

/** Every way to fail, as a list: to check what is read, and to count. */
export const FAILURE_CLASSES = Object.keys(ALL) as [FailureClass, ...FailureClass[]];
