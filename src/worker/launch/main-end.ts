import { type FSWatcher, watch } from 'node:fs';
import type { Exit } from '../../contract/launch.js';
import type { Run } from '../../runtime/types.js';

/** Tells when a launch's main process has failed while its spare waits, which its supervisor notes in the launch's folder. */
export class MainEnd {
  #watcher: FSWatcher | null = null;

  constructor(
    private readonly run: Run,
    private readonly failed: (exit: Exit) => void,
  ) {}

  /** False: the folder cannot be watched. */
  start(): boolean {
    if (this.#watcher !== null) return true;
    try {
      this.#watcher = watch(this.run.dir, { persistent: false }, () => this.#look());
      this.#watcher.on('error', () => this.stop());
    } catch {
      return false;
    }
    this.#look();
    return true;
  }

  stop(): void {
    this.#watcher?.close();
    this.#watcher = null;
  }

  #look(): void {
    const exit = this.#watcher === null ? null : this.run.mainExit();
    if (exit === null) return;
    this.stop();
    if (exit.ended_by === 'job' && exit.code !== 0) this.failed({ ...exit, ledger: this.run.ledger() });
  }
}
