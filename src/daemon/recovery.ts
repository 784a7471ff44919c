import { stateFolder } from '../common/home.js';
import type { Log } from '../common/log.js';
import { ENDED_STATES } from '../contract/job.js';
import { type LiveLaunch, liveLaunches } from '../runtime/live-launches.js';
import type { Runtime } from '../runtime/types.js';
import { retry, type Store } from '../store/index.js';
import type { JobBackups } from './job-backups.js';

/** Before a daemon takes jobs: restores what Redis lost of this host's, and ends copies of jobs that others took over. */
export class Recovery {
  constructor(
    private readonly parts: {
      store: Store;
      runtime: Runtime;
      claimed: JobBackups;
      ended: JobBackups;
      host: string;
      log: Log;
    },
  ) {}

  async recover(): Promise<void> {
    await this.writeBack(() => false);
    for (const launch of liveLaunches(stateFolder('runs'))) await this.#look(launch);
    await this.restoreEnds();
  }

  /** `worksAt`: an execution restores its own record. */
  async writeBack(worksAt: (job: string) => boolean): Promise<void> {
    for (const id of this.parts.claimed.ids()) {
      const kept = worksAt(id) ? null : this.parts.claimed.get(id);
      if (kept === null || kept.host !== this.parts.host) continue;
      const { job, launches } = kept.record;
      const restored = await this.parts.store.jobs.restore(kept);
      if (restored === 'restored') this.parts.log.warn({ job }, 'Redis had lost the job: its record is written back');
      if (restored === 'restored' || restored === 'kept') continue;
      await this.#end({ job, dir: launches.at(-1)?.dir ?? '' }, restored);
      this.parts.claimed.remove(job);
    }
  }

  /** Restores ends that an older state of Redis lost and would run again. */
  async restoreEnds(): Promise<void> {
    const ids = this.parts.ended.ids();
    const replies = await this.parts.store.jobs.standing(ids);
    for (const [at, reply] of replies.entries()) {
      if (reply.is !== 'value' || ENDED_STATES.includes(reply.value.state)) continue;
      const ended = this.parts.ended.get(ids[at] as string);
      if (ended === null || !(await this.parts.store.jobs.restoreEnd(ended))) continue;
      this.parts.log.warn(
        { job: ended.record.job },
        'Redis stood as before the end of the job: how it ended is written back',
      );
    }
  }

  /** A living run: the job's last launch, a copy that was to end, or one that nobody knows. */
  async #look(launch: LiveLaunch): Promise<void> {
    const found = await this.parts.store.jobs.find(launch.job);
    if (found.is === 'missing') {
      // A foreground command has no record; a daemon's job whose backup was lost as well looks the same
      this.parts.log.info(launch, 'a run that no record tells of: it is left alone');
    } else if (found.is === 'job') {
      const { ended_at, launches } = found.job;
      if (ended_at !== null) {
        // Not awaited: what is left of it may be stuck in the kernel
        this.#end(launch, 'ended').catch((err: unknown) =>
          this.parts.log.warn({ err, ...launch }, 'a run was not ended'),
        );
      } else if (!launches.some(({ dir }) => dir === launch.dir)) await this.#end(launch, 'fenced');
    }
  }

  async #end({ job, dir }: LiveLaunch, why: string): Promise<void> {
    const run = dir === '' ? null : await this.parts.runtime.adopt(dir);
    if (run === null) return;
    this.parts.log.warn(
      { job, dir, why },
      'the job was given to others, or ended, while this host was away: its copy here is ended',
    );
    run.end('cancel');
    const { stuck, error } = await run.wait();
    if (stuck !== undefined) {
      this.parts.log.warn(
        { job, pids: stuck, why: error },
        'a process of the job cannot be ended: its lease stays until it is gone',
      );
      return;
    }
    const { leasing } = this.parts.store;
    await retry(() => leasing.forget(job), { onRefused: leasing.onRefused });
  }
}
