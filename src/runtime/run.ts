import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { longestEndMs } from '../common/bounds.js';
import { bootId, processLives } from '../common/process.js';
import { isNumbered } from '../contract/device-id.js';
import { type Exit, type LedgerReading, type SupervisorRecord, unseenEnd } from '../contract/launch.js';
import { attempt, clearGroup, endKeeper, endOrKill, endOrphans, signal } from './ending.js';
import { unlocked } from './folder-lock.js';
import type { Addon } from './native.js';
import { readExit, readMainExit, takeMainExit, writeExit } from './records.js';
import { dyingProcesses, type StuckProcess } from './stuck.js';
import { groupsOf, isStopped, keeperOf, supervisorInside } from './traces.js';
import type { JobSignal, Run } from './types.js';

const MEMORY_BACK_MS = 10_000;
const MEMORY_LOOK_MS = 100;
/** Between two looks at a supervisor whose end is waited for. */
const WATCH_MS = 2000;
/** How much a supervisor may exceed a run's time limit. */
const LATE_MS = 15_000;
/** How much a supervisor, its keeper and the driver may exceed the job's grace. */
const ANSWER_MS = 30_000;

/** Waits until no GPU's use falls any more: a driver may free a dead process's memory late. */
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

/** A launch by the records in its folder, for who started it and who found it. */
export class SupervisedRun implements Run {
  readonly logFile: string;
  private ended: Promise<Exit> | undefined;
  private asked: 'cancel' | 'timeout' | null = null;
  /** When that was (ms of the monotonic clock, which stops while the machine sleeps). */
  private askedAt = Number.POSITIVE_INFINITY;
  /** When it began, by the same clock, which nobody sets: how long ago a run that is found began, only the other one tells. */
  private readonly begunAt: number;

  constructor(
    private readonly addon: Addon,
    readonly dir: string,
    private readonly record: SupervisorRecord,
  ) {
    this.logFile = join(dir, 'log');
    this.begunAt = performance.now() - Math.max(0, Date.now() - Date.parse(record.started_at));
  }

  get supervisorPid(): number {
    return this.record.pid;
  }

  ledger(): LedgerReading | null {
    return readLedger(this.addon, this.dir);
  }

  mainExit(): Omit<Exit, 'ledger'> | null {
    return readMainExit(this.dir);
  }

  wait(): Promise<Exit> {
    this.ended ??= this.waitInBounds();
    return this.ended;
  }

  signal(name: JobSignal): void {
    const { boot_id: boot, job_pid: pid, job_start_time: start } = this.record;
    if (boot === bootId() && pid !== null && processLives(pid, start ?? 0))
      signal(name === 'SIGINT' ? -pid : pid, name);
  }

  end(reason: 'cancel' | 'timeout'): void {
    const pid = this.supervisor();
    if (pid === null) return;
    const order = reason === 'timeout' ? 'SIGUSR1' : 'SIGTERM';
    if (this.asked !== null) {
      signal(pid, order);
      return;
    }
    this.asked = reason;
    this.askedAt = performance.now();
    void endOrKill(pid, order, this.record.grace_ms, () => processLives(pid, this.record.start_time));
  }

  /** The supervisor's pid here, in a container not that of its record; null: gone. */
  private supervisor(): number | null {
    const { boot_id: boot, pid, start_time: start } = this.record;
    if (boot !== bootId()) return null;
    return processLives(pid, start) ? pid : supervisorInside(this.dir, pid, start);
  }

  /** Waits for the end, but not for processes that the kernel does not let go: those still dying after OOMTUNE_END_SECONDS. */
  private async waitInBounds(): Promise<Exit> {
    const whole = this.waitOnce();
    whole.catch(() => {}); // nobody may be left to hear of it
    const since = new Map<number, number>();
    let timer: NodeJS.Timeout | undefined;
    const givenUp = new Promise<Exit>((resolve) => {
      timer = setInterval(() => {
        const dying = this.mayBeEnding() ? dyingProcesses(this.dir) : [];
        const now = performance.now();
        for (const pid of since.keys()) if (!dying.some((one) => one.pid === pid)) since.delete(pid);
        for (const { pid } of dying) if (!since.has(pid)) since.set(pid, now);
        const stuck = dying.filter(({ pid }) => now - (since.get(pid) ?? now) >= longestEndMs());
        const overdue = now - this.askedAt >= this.record.grace_ms + ANSWER_MS + longestEndMs();
        if (stuck.length > 0 || overdue) resolve(this.stuckExit(stuck));
      }, WATCH_MS);
      timer.unref();
    });
    try {
      return await Promise.race([whole, givenUp]);
    } finally {
      clearInterval(timer);
    }
  }

  /** Only then are all processes looked through: it was told to end, or its own process is gone. */
  private mayBeEnding(): boolean {
    const { job_pid: pid, job_start_time: start } = this.record;
    return this.asked !== null || this.isLate(0) || pid === null || !processLives(pid, start ?? 0);
  }

  /** Whether it exceeded its time limit by `ms`. */
  private isLate(ms: number): boolean {
    const { timeout_ms: limit } = this.record;
    return limit > 0 && performance.now() > this.begunAt + limit + ms;
  }

  /** The end of a run with stuck processes: as its main process ended, or as killed. */
  private stuckExit(stuck: StuckProcess[]): Exit {
    const which = stuck.map(({ pid, name }) => `process ${pid} (${name})`).join(', ') || 'something of it';
    const error = `${which} was killed and is still there after ${longestEndMs() / 1000} s: the kernel has not let go of it.`;
    const by = this.asked ?? (this.isLate(0) ? 'timeout' : 'job');
    const main = readMainExit(this.dir) ?? { ...unseenEnd(by, this.record.started_at), signal: 'SIGKILL' };
    return {
      ...main,
      error: error.charAt(0).toUpperCase() + error.slice(1),
      stuck: stuck.map(({ pid }) => pid),
      ledger: this.ledger(),
    };
  }

  private async waitOnce(): Promise<Exit> {
    const pid = this.supervisor();
    const keeper = pid === null ? null : keeperOf(pid, this.dir);
    if (pid !== null) {
      const watch = setInterval(() => this.watch(pid), WATCH_MS);
      watch.unref();
      await this.addon.waitForProcess(pid, this.record.start_time);
      clearInterval(watch);
    }
    const exit = readExit(this.dir) ?? (await this.withoutWord());
    // A stopped keeper would stay for ever; one that was not watched, or had to act, may still be at work
    const keeps = keeper === null ? pid === null : isStopped(keeper) || exit.ended_by !== 'job';
    if (keeps) await endKeeper(this.dir);
    const ledger = this.ledger();
    if (ledger?.devices.some(({ device }) => isNumbered(device))) await memoryBack(this.addon);
    return { ...this.asAsked(exit), ledger };
  }

  /** Continues a supervisor that was stopped, perhaps by its job: it serves output and time limit. */
  private watch(pid: number): void {
    if (!processLives(pid, this.record.start_time)) return;
    if (isStopped(pid)) signal(pid, 'SIGCONT');
    if (this.isLate(this.record.grace_ms + LATE_MS)) this.end('timeout');
  }

  /** If it had to be killed because it ignored a request, it ended for that request's reason. */
  private asAsked(exit: Omit<Exit, 'ledger'>): Omit<Exit, 'ledger'> {
    if (this.asked === null || exit.ended_by !== 'supervisor-lost') return exit;
    const error = 'The supervisor did not answer; it was killed, and the job with it.';
    return { ...exit, ended_by: this.asked, error };
  }

  /** The end when no supervisor is visible and none wrote a record. */
  private async withoutWord(): Promise<Omit<Exit, 'ledger'>> {
    await endKeeper(this.dir);
    await unlocked(this.dir);
    return readExit(this.dir) ?? this.afterLoss();
  }

  /** Supervisor and keeper died without a record, so how the job ended is unknown. Ends what is left of it. */
  private async afterLoss(): Promise<Omit<Exit, 'ledger'>> {
    const sameBoot = this.record.boot_id === bootId();
    const stragglers = sameBoot ? await endOrphans(this.dir) : 0;
    const groups = this.record.cgroup === null ? groupsOf(this.dir) : [this.record.cgroup];
    if (sameBoot) for (const group of groups) await clearGroup(group);
    const main = takeMainExit(this.dir);
    if (main !== null) return main;
    const error = 'The supervisor was killed, or the machine went down; what was left of the job has been ended.';
    const exit = { ...unseenEnd('supervisor-lost', this.record.started_at, error), stragglers };
    // Reported even if the folder is gone, perhaps with the supervisor's own record.
    attempt(() => writeExit(this.dir, exit));
    return exit;
  }
}

/** The ledger of a launch folder; null: there is none, or none of our libraries ran in the job. */
function readLedger(addon: Addon, dir: string): LedgerReading | null {
  const read = addon.readLedger(join(dir, 'ledger'));
  if (!read || read.claims === 0) return null;
  return {
    devices: read.devices.map(({ measured, refused: _refused, kinds: _kinds, ...device }) => ({
      ...device,
      measured_by: measured,
    })),
    refused: read.refused,
    refusals: read.refusals.map(({ tid: _tid, budget_bytes, at_ms, ...refusal }) => ({
      ...refusal,
      budget_bytes: budget_bytes ?? 0,
      at: new Date(at_ms).toISOString(),
    })),
    blind: read.blind !== 0,
  };
}
