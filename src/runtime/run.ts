import { readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { RUN_MARK } from './devices.js';
import { unlocked } from './folder-lock.js';
import { readLedger } from './ledger.js';
import type { Addon } from './native.js';
import { bootId, processesWith, processLives } from './process.js';
import { readExit, type SupervisorRecord, writeExit } from './records.js';
import type { Exit, LedgerReading, Run } from './types.js';

const ORPHAN_GRACE_MS = 2000;
const ORPHAN_LOOK_MS = 50;

const MEMORY_BACK_MS = 10_000;
const MEMORY_LOOK_MS = 100;

/** For what may be gone by the time it is done. */
function attempt(action: () => void): void {
  try {
    action();
  } catch {
    // gone, or another user's
  }
}

const signal = (pid: number, name: NodeJS.Signals) => attempt(() => process.kill(pid, name));

/** Kills what is left in the launch's cgroup (even what has changed its environment), waits until it is empty, and removes it. */
async function clearGroup(folder: string | null): Promise<void> {
  if (folder === null || !basename(folder).startsWith('oomtune-')) return;
  while (isPopulated(folder)) {
    attempt(() => writeFileSync(join(folder, 'cgroup.kill'), '1')); // since Linux 5.14
    await sleep(ORPHAN_LOOK_MS);
  }
  attempt(() => rmdirSync(folder));
}

/** Zombies do not count, groups that the job made below it do. */
function isPopulated(folder: string): boolean {
  try {
    return /^populated 1$/m.test(readFileSync(join(folder, 'cgroup.events'), 'utf8'));
  } catch {
    return false; // there is no such group
  }
}

/** Ends what a lost supervisor left behind, known by its mark in the environment; returns how many there were. */
async function endOrphans(dir: string): Promise<number> {
  const seen = new Set<number>();
  const killAt = Date.now() + ORPHAN_GRACE_MS;
  for (;;) {
    const left = processesWith(RUN_MARK, dir);
    if (left.length === 0) return seen.size;
    for (const pid of left) {
      if (Date.now() >= killAt) signal(pid, 'SIGKILL');
      else if (!seen.has(pid)) signal(pid, 'SIGTERM');
      seen.add(pid);
    }
    await sleep(ORPHAN_LOOK_MS);
  }
}

/** The driver may give a dead process's memory back a moment late: waits until no GPU's use falls any more. */
async function memoryBack(addon: Addon): Promise<void> {
  const until = Date.now() + MEMORY_BACK_MS;
  let before = new Map<string, number>();
  while (Date.now() < until) {
    const { gpus } = await addon.inventory();
    const falling = gpus.some(({ uuid, used_bytes }) => used_bytes < (before.get(uuid) ?? Number.POSITIVE_INFINITY));
    if (!falling) return;
    before = new Map(gpus.map(({ uuid, used_bytes }) => [uuid, used_bytes]));
    await sleep(MEMORY_LOOK_MS);
  }
}

/** A launch, by the records in its folder: the same object for who started it and for who found it later. */
export class SupervisedRun implements Run {
  readonly logFile: string;
  private ended: Promise<Exit> | undefined;

  constructor(
    private readonly addon: Addon,
    readonly dir: string,
    private readonly record: SupervisorRecord,
  ) {
    this.logFile = join(dir, 'log');
  }

  get supervisorPid(): number {
    return this.record.pid;
  }

  /** The job's own process; null when it could not be started. */
  get jobPid(): number | null {
    return this.record.job_pid;
  }

  ledger(): LedgerReading | null {
    return readLedger(this.addon, this.dir);
  }

  wait(): Promise<Exit> {
    this.ended ??= this.waitOnce();
    return this.ended;
  }

  end(reason: 'cancel' | 'timeout'): void {
    if (this.supervised()) signal(this.record.pid, reason === 'timeout' ? 'SIGUSR1' : 'SIGTERM');
  }

  private supervised(): boolean {
    return this.record.boot_id === bootId() && processLives(this.record.pid, this.record.start_time);
  }

  private async waitOnce(): Promise<Exit> {
    if (this.supervised()) await this.addon.waitForProcess(this.record.pid, this.record.start_time);
    const exit = readExit(this.dir) ?? (await this.withoutWord());
    const ledger = this.ledger();
    if (ledger?.devices.some(({ device }) => device.startsWith('cuda:'))) await memoryBack(this.addon);
    return { ...exit, ledger };
  }

  /** No supervisor can be seen, and it wrote no word. */
  private async withoutWord(): Promise<Omit<Exit, 'ledger'>> {
    await unlocked(this.dir);
    return readExit(this.dir) ?? this.afterLoss();
  }

  /**
   * The supervisor died without a word (killed, or the machine went down): nobody knows how the job would have ended. Ends
   * what is left: the job's own process has gone with its supervisor, and all of a container goes with the container.
   */
  private async afterLoss(): Promise<Omit<Exit, 'ledger'>> {
    const sameBoot = this.record.boot_id === bootId();
    const stragglers = sameBoot ? await endOrphans(this.dir) : 0;
    if (sameBoot) await clearGroup(this.record.cgroup);
    const exit: Omit<Exit, 'ledger'> = {
      code: null,
      signal: null,
      ended_by: 'supervisor-lost',
      error: 'The supervisor was killed, or the machine went down; what was left of the job has been ended.',
      host_oom: null,
      started_at: this.record.started_at,
      ended_at: new Date().toISOString(),
      stragglers,
    };
    // Where the folder is gone, perhaps with the supervisor's own record, the end is told all the same.
    attempt(() => writeExit(this.dir, exit));
    return exit;
  }
}
