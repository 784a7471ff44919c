import { setTimeout as sleep } from 'node:timers/promises';
import { signal } from './ending.js';
import { processesOf } from './marks.js';
import { isStopped, supervisorsOf } from './traces.js';

const LOOK_MS = 20;
const LONGEST_MS = 5000;

/** Stops every process of a launch, or lets them all go on. Its supervisor stays at work: it ends a stopped job, too. Returns how many. */
export async function setPaused(dir: string, paused: boolean): Promise<number> {
  const until = Date.now() + LONGEST_MS;
  const seen = new Set<number>();
  for (;;) {
    const supervisors = supervisorsOf(dir);
    const waiting = processesOf(dir).filter((pid) => !supervisors.includes(pid) && isStopped(pid) !== paused);
    for (const pid of waiting) {
      seen.add(pid);
      signal(pid, paused ? 'SIGSTOP' : 'SIGCONT');
    }
    // What was just forked is found at the next look; a process in the kernel's hands stops when it comes back
    if (waiting.length === 0 || Date.now() > until) return seen.size;
    await sleep(LOOK_MS);
  }
}
