import { closeSync, openSync } from 'node:fs';
import { type HeldLock, holdLock } from '../runtime/folder-lock.js';

/**
 * Holds the kernel's lock on a file of this home, which is made if it is missing, for as long as this process lives. A crash leaves
 * nothing behind, and two that start at once cannot both have it. Null: somebody else holds it.
 */
export function lockFile(path: string): HeldLock | null {
  closeSync(openSync(path, 'a', 0o600));
  return holdLock(path);
}
