import { statfsSync } from 'node:fs';
import { homePath } from '../common/home.js';
import type { Log } from '../common/log.js';
import { formatBytes } from '../common/size.js';

/** Whether the home's disk has room for another job's log and records, and for the database. */
export class DiskSpace {
  #lack: string | null = null;

  /** `keep`: bytes for running jobs. */
  constructor(
    private readonly keep: number,
    private readonly log: Log,
  ) {}

  /** What is lacking, in words, measured now; null: nothing. */
  get lack(): string | null {
    const lack = this.#look();
    if (lack !== null && this.#lack === null) this.log.warn({ lack }, 'no job is taken until there is room');
    if (lack === null && this.#lack !== null) this.log.info('there is room again: jobs are taken');
    this.#lack = lack;
    return lack;
  }

  #look(): string | null {
    const home = homePath();
    const { bavail, bsize, files, ffree } = statfsSync(home);
    const free = bavail * bsize;
    if (free < this.keep) return `room at ${home}: ${formatBytes(free)} are free, ${formatBytes(this.keep)} are kept`;
    return files > 0 && ffree === 0 ? `room at ${home}: no file can be made there` : null;
  }
}
