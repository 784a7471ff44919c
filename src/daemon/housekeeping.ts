import type { Log } from '../common/log.js';
import { logPath } from './daemon-file.js';
import { boundLog } from './own-log.js';

const LOOK_MS = 5000;

/** Keeps what a daemon writes bounded while it runs, with or without Redis. */
export class Housekeeping {
  readonly #log: Log;
  readonly #timer: NodeJS.Timeout;

  constructor(log: Log) {
    this.#log = log;
    this.#timer = setInterval(() => this.#look(), LOOK_MS).unref();
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #look(): void {
    try {
      boundLog(logPath());
    } catch (error) {
      this.#log.warn({ err: error }, 'the log of the daemon could not be bounded');
    }
  }
}
