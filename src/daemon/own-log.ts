import { copyFileSync, fstatSync, ftruncateSync, renameSync, statSync } from 'node:fs';

const LOG_BYTES = 10 * 1024 * 1024;
const STDERR = 2;

/** Moves a long log aside before a daemon starts; returns where new lines begin. */
export function rotateLog(path: string): number {
  const size = statSync(path, { throwIfNoEntry: false })?.size ?? 0;
  if (size < LOG_BYTES) return size;
  renameSync(path, `${path}.1`);
  return 0;
}

/** Bounds the daemon's log: copies it aside and truncates it in place, as others may hold it open. Only where stderr is it. */
export function boundLog(path: string): void {
  const log = fstatSync(STDERR);
  if (!log.isFile() || log.size < LOG_BYTES) return;
  const named = statSync(path, { throwIfNoEntry: false });
  const ours = named?.ino === log.ino && named.dev === log.dev;
  if (!ours && log.nlink > 0) return; // a file of the user's
  try {
    if (ours) copyFileSync(path, `${path}.1`);
  } finally {
    ftruncateSync(STDERR, 0); // on a full disk too: there its room is worth more than what it says
  }
}
