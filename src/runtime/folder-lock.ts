import { closeSync, openSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { loadNative } from './native.js';

const LOOK_MS = 500;

/** A kernel lock that this process holds until it lets go of it or ends, however it ends. */
export interface HeldLock {
  release(): void;
}

/** Takes the lock on a file or folder; null: somebody else has it. Throws what the file system says (`code`: ENOENT, EACCES, …). */
export function holdLock(path: string): HeldLock | null {
  const file = loadNative().addon.holdLock(path);
  return file === null ? null : { release: () => closeSync(file) };
}

/** The same on a file of this home, which is made if it is missing: two that start at once cannot both have it. */
export function lockFile(path: string): HeldLock | null {
  closeSync(openSync(path, 'a', 0o600));
  return holdLock(path);
}

/**
 * Whether somebody holds the lock on a launch's folder, which its supervisor has from its first moment until nothing of the
 * launch is left. That tells of a supervisor in another container, which no pid does.
 */
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

/** Waits until nobody holds it. */
export async function unlocked(dir: string): Promise<void> {
  while (isLocked(dir)) await sleep(LOOK_MS);
}
