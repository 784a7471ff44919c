import type { Log } from '../common/log.js';

/** Repeated tasks, each at most once at a time. */
export class Periodic {
  readonly #timers: NodeJS.Timeout[] = [];

  constructor(private readonly log: Log) {}

  every(ms: number, task: () => Promise<void>): void {
    let busy = false;
    let logged = '';
    const run = async (): Promise<void> => {
      if (busy) return; // Redis is away: one that waits is enough
      busy = true;
      try {
        await task();
        logged = '';
      } catch (error) {
        if (String(error) !== logged) this.log.warn({ err: error }, 'a periodic task failed');
        logged = String(error); // once, not every two seconds for as long as Redis refuses
      } finally {
        busy = false;
      }
    };
    this.#timers.push(setInterval(() => void run(), ms));
  }

  close(): void {
    for (const timer of this.#timers) clearInterval(timer);
  }
}
