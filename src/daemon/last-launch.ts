import { aborted } from '../common/within.js';
import type { Exit } from '../contract/launch.js';
import { type LeaseStore, retry, type StoredJob } from '../store/index.js';
import { letsGo } from '../worker/launch/detached.js';
import type { AdoptedRun, Hands } from './hands.js';

/** A job's last launch, perhaps of an earlier daemon, which may still run. */
export class LastLaunch {
  /** What its processes were last told, and of which launch; null: nothing. */
  #still: { dir: string; still: boolean } | null = null;

  constructor(
    private readonly job: StoredJob,
    private readonly hands: Pick<Hands, 'adopt' | 'setPaused'>,
    private readonly leasing: LeaseStore,
  ) {}

  /** Whether it is the job itself, not a probe of a search; false: nothing was launched. */
  get isRun(): boolean {
    return this.job.launches.at(-1)?.purpose === 'run';
  }

  /** Ends a process of a search, which nobody listens to any more, before another is started. */
  async endStray(): Promise<void> {
    if (this.job.launches.at(-1)?.purpose === 'search') await this.end();
  }

  /** Ends it and waits until nothing is left, except what the exit calls `stuck`. */
  async end(): Promise<Exit | null> {
    const run = await this.#find();
    if (run === null) return null;
    run.end('cancel');
    const exit = await run.wait();
    if (exit.stuck === undefined) await this.#forget();
    return exit;
  }

  /** Stops its processes, whose memory stays reserved, or continues them. Returns how many; null: no change, or no run. */
  async setStill(still: boolean): Promise<number | null> {
    const last = this.job.launches.at(-1);
    if (last?.purpose !== 'run') return null;
    if (this.#still?.still === still && (!still || this.#still.dir === last.dir)) return null;
    // An earlier daemon may have left it standing still
    const first = this.#still === null;
    this.#still = { dir: last.dir, still };
    const processes = await this.hands.setPaused(last.dir, still).catch((error: unknown) => {
      this.#still = null; // they may not have been told: the next look tells them
      throw error;
    });
    return first && !still ? null : processes;
  }

  /** Waits for a run that can only be watched, and calls `found`. Null: nothing runs, or it is to be ended. Throws to let go. */
  async waitForEnd(signal: AbortSignal, found: () => void): Promise<Exit | null> {
    const run = this.isRun ? await this.#find() : null;
    if (run === null) return null;
    found();
    const exit = (await Promise.race([run.wait(), aborted(signal)])) ?? null;
    if (exit === null && letsGo(signal)) throw signal.reason;
    if (exit !== null && exit.stuck === undefined) await this.#forget();
    return exit;
  }

  #forget(): Promise<void> {
    return retry(() => this.leasing.forget(this.job.job), { onRefused: this.leasing.onRefused });
  }

  async #find(): Promise<AdoptedRun | null> {
    const last = this.job.launches.at(-1);
    return last === undefined ? null : this.hands.adopt(last.dir);
  }
}
