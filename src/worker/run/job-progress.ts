import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Log } from '../../common/log.js';
import type { Exit } from '../../contract/launch.js';
import type { WorkRequest } from '../types.js';
import { wroteCheckpoint } from './resumption.js';

/** A file in the folder of a launch that made progress. */
const MARK = 'progress';

/** Whether a job's launches made progress, also for a later process that has to know whether it can resume. */
export class JobProgress {
  #made: boolean;
  #noted = '';

  constructor(
    private readonly request: WorkRequest,
    private readonly log: Log,
  ) {
    this.#made = request.launches.some(({ purpose, dir }) => purpose === 'run' && existsSync(join(dir, MARK)));
  }

  /** Whether any launch of the job made progress, so that the next should resume. */
  get made(): boolean {
    return this.#made;
  }

  /** Notes a step or checkpoint of this launch. */
  note(dir: string): void {
    if (this.#noted === dir) return;
    this.#noted = dir;
    this.#made = true;
    try {
      writeFileSync(join(dir, MARK), '', { mode: 0o600 });
    } catch (error) {
      this.log.warn({ err: error }, 'the progress of the job could not be noted'); // a full disk ends no job
    }
  }

  /** Checks whether earlier starts by a scheduler, from `since` on (ms), left a checkpoint. */
  async lookSince(since: number | null): Promise<void> {
    if (since === null || this.#made) return;
    this.#made = await wroteCheckpoint(this.request.command, this.request.options.cwd, since);
  }

  /** Checks whether an ended launch left a checkpoint. */
  async look(dir: string, exit: Exit): Promise<void> {
    const { command, options } = this.request;
    if (this.#made) return;
    if (await wroteCheckpoint(command, options.cwd, Date.parse(exit.started_at))) this.note(dir);
  }
}
