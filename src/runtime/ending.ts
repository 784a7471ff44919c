/** Signals to the processes of a launch: to end what is left of it, or to pause it. */
import { readdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { processesOf } from './marks.js';
import { isPopulated, isStopped, supervisorsOf } from './traces.js';

const ORPHAN_GRACE_MS = 2000;
const LOOK_MS = 50;
/** Beyond the job's grace; then the supervisor counts as one that does not answer. */
const ANSWER_MS = 10_000;
/** For the keeper of a killed supervisor, to end the rest of the tree. */
const KEEPER_MS = 10_000;

/** Ignores errors: what it acts on may be gone. */
export function attempt(action: () => void): void {
  try {
    action();
  } catch {
    // gone, or another user's
  }
}

export const signal = (pid: number, name: NodeJS.Signals) => attempt(() => process.kill(pid, name));

/** Kills what is left in the launch's cgroup, also with another environment, waits until it is empty, and removes it. */
export async function clearGroup(folder: string): Promise<void> {
  if (!basename(folder).startsWith('oomtune-')) return;
  while (isPopulated(folder)) {
    attempt(() => writeFileSync(join(folder, 'cgroup.kill'), '1')); // since Linux 5.14
    for (const group of groupsIn(folder)) attempt(() => killMembers(group));
    await sleep(LOOK_MS);
  }
  for (const group of groupsIn(folder)) attempt(() => rmdirSync(group));
}

/** For Linux before 5.14; a process that was just forked is found at the next look. */
function killMembers(group: string): void {
  for (const line of readFileSync(join(group, 'cgroup.procs'), 'utf8').split('\n')) {
    if (Number(line) > 0) signal(Number(line), 'SIGKILL');
  }
}

/** The innermost groups first. */
function groupsIn(folder: string): string[] {
  const below: string[] = [];
  attempt(() => {
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      if (entry.isDirectory()) below.push(...groupsIn(join(folder, entry.name)));
    }
  });
  return [...below, folder];
}

/** Ends what a lost supervisor left, found by its marks; returns how many processes. */
export async function endOrphans(dir: string): Promise<number> {
  const seen = new Set<number>();
  const killAt = Date.now() + ORPHAN_GRACE_MS;
  for (;;) {
    const left = processesOf(dir);
    if (left.length === 0) return seen.size;
    for (const pid of left) {
      if (Date.now() >= killAt) signal(pid, 'SIGKILL');
      else if (!seen.has(pid)) signal(pid, 'SIGTERM');
      seen.add(pid);
    }
    await sleep(LOOK_MS);
  }
}

/** Waits, for a bounded time, for the keeper of a supervisor that is gone; it may have been stopped. */
export async function endKeeper(dir: string): Promise<void> {
  const until = Date.now() + KEEPER_MS;
  for (;;) {
    const left = supervisorsOf(dir);
    if (left.length === 0) return;
    for (const pid of left) signal(pid, Date.now() < until ? 'SIGCONT' : 'SIGKILL');
    await sleep(LOOK_MS);
  }
}

/** Tells a supervisor to end its job, and kills it some seconds after the grace. Resolves when it is gone. */
export async function endOrKill(
  pid: number,
  order: NodeJS.Signals,
  graceMs: number,
  lives: () => boolean,
): Promise<void> {
  const until = Date.now() + graceMs + ANSWER_MS;
  signal(pid, order);
  while (lives()) {
    signal(pid, Date.now() < until ? 'SIGCONT' : 'SIGKILL'); // its own job may have stopped it
    await sleep(LOOK_MS);
  }
}

const LONGEST_PAUSE_MS = 5000;

/** Stops or continues every process of a launch except its supervisor, which can still end the job. Returns how many. */
export async function setPaused(dir: string, paused: boolean): Promise<number> {
  const until = Date.now() + LONGEST_PAUSE_MS;
  const seen = new Set<number>();
  for (;;) {
    const supervisors = supervisorsOf(dir);
    const waiting = processesOf(dir).filter((pid) => !supervisors.includes(pid) && isStopped(pid) !== paused);
    for (const pid of waiting) {
      seen.add(pid);
      signal(pid, paused ? 'SIGSTOP' : 'SIGCONT');
    }
    // A new fork is found at the next look; a process inside the kernel stops when it returns
    if (waiting.length === 0 || Date.now() > until) return seen.size;
    await sleep(LOOK_MS);
  }
}
