import { closeSync, openSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { loadNative } from './native.js';

const LOOK_MS = 500;

/** A kernel lock, held until it is released or this process ends. */
export interface HeldLock {
  release(): void;
}

/** Locks a file or folder; null: somebody else has it. Throws the file system's error (`code`: ENOENT, EACCES, …). */
export function holdLock(path: string): HeldLock | null {
  const file = loadNative().addon.holdLock(path);
  return file === null ? null : { release: () => closeSync(file) };
}

/** The same for a file of this home, which is made if need be. */
export function lockFile(path: string): HeldLock | null {
  closeSync(openSync(path, 'a', 0o600));
  return holdLock(path);
}

/** Whether the supervisor of a launch still holds its folder's lock. Unlike a pid, that also shows in another container. */
export function isLocked(dir: string): boolean {
  try {
    const lock = holdLock(dir);
    lock?.release();
    return lock === null;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false; // there is no such folder
    throw error;
  }
}

export async function unlocked(dir: string): Promise<void> {
  while (isLocked(dir)) await sleep(LOOK_MS);
}
