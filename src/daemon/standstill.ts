import type { Log } from '../common/log.js';
import type { StoredJob } from '../store/index.js';
import type { ClaimedRecord } from './claimed-record.js';
import type { LastLaunch } from './last-launch.js';

const PAUSED = 'paused: its memory stays its own until it goes on, or ends';
/** Reasons of a job that stood still. */
const STANDING = /^(paused|waits for its turn|stands still)/;

/** Has a job stand still: as its user asks, or for another job beside which it would get less done. */
export class Standstill {
  /** Why it does for another job; null: it does not. */
  #turn: string | null = null;

  constructor(
    private readonly record: StoredJob,
    private readonly claimed: ClaimedRecord,
    private readonly last: LastLaunch,
    private readonly log: Log,
  ) {}

  get asked(): boolean {
    return this.record.pause === 'on';
  }

  async setPause(wanted: 'on' | 'off'): Promise<void> {
    this.record.pause = wanted;
    await this.#stand();
  }

  /** For this reason, beside what its user asks for; null: it may run. */
  async takeTurn(reason: string | null): Promise<void> {
    this.#turn = reason;
    await this.#stand();
  }

  async #stand(): Promise<void> {
    const wanted = this.asked ? PAUSED : this.#turn;
    // A search takes forks that its job has left, which a pause may have reached with the job: it goes on, as every search does.
    const reason = this.record.state === 'running' ? wanted : null;
    const still = reason !== null;
    const processes = await this.last.setStill(still);
    if (processes !== null && processes > 0)
      this.log.info({ processes, why: this.#turn }, still ? 'the job stands still' : 'the job goes on');
    if (still || STANDING.test(this.claimed.reason ?? '')) this.claimed.say(reason);
  }
}
