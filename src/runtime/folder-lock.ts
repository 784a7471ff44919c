import { execFile } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';

/** What flock(1) is to end with when somebody else holds the lock. */
const LOCKED = 75;
const LOOK_MS = 500;

/**
 * Whether somebody holds the lock on a launch's folder, which its supervisor has from its first moment to its last. That
 * tells of a supervisor in another container, which no pid does.
 */
export function isLocked(dir: string): Promise<boolean> {
  const argv = ['--nonblock', '--conflict-exit-code', String(LOCKED), dir, 'true'];
  return new Promise((resolve) => {
    execFile('flock', argv, (error) => resolve(error?.code === LOCKED)); // another status: there is no such folder
  });
}

/** Waits until nobody holds it. */
export async function unlocked(dir: string): Promise<void> {
  while (await isLocked(dir)) await sleep(LOOK_MS);
}
