import type { Log } from '../common/log.js';
import type { Store } from '../store/index.js';
import { logPath } from './daemon-file.js';
import { JobBackups } from './job-backups.js';
import { boundLog } from './own-log.js';
import { tidyRuns } from './retention.js';
import type { DaemonSettings } from './settings.js';

const LOOK_MS = 5000;

/** Bounds what a daemon and its jobs leave on the disk. */
export class Housekeeping {
  readonly #timers: NodeJS.Timeout[];
  #tidying = false;

  constructor(
    private readonly parts: { store: Store; log: Log; settings: DaemonSettings; more?: () => Promise<void> },
  ) {
    this.#timers = [
      setInterval(() => this.#boundLog(), LOOK_MS).unref(),
      setInterval(() => void this.#tidy(), parts.settings.tidyMs).unref(),
    ];
    void this.#tidy();
  }

  close(): void {
    for (const timer of this.#timers) clearInterval(timer);
  }

  #boundLog(): void {
    try {
      boundLog(logPath());
    } catch (error) {
      this.parts.log.warn({ err: error }, 'the log of the daemon could not be bounded');
    }
  }

  async #tidy(): Promise<void> {
    if (this.#tidying) return;
    this.#tidying = true;
    const { store, log, settings, more } = this.parts;
    try {
      await tidyRuns(store, log, settings.keptRuns ?? undefined);
      new JobBackups(store, log, 'ended').prune();
      await more?.();
    } catch (error) {
      log.warn({ err: error }, 'what ended jobs left on the disk could not be tidied');
    } finally {
      this.#tidying = false;
    }
  }
}
