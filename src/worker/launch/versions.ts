import { packageVersion } from '../../common/home.js';
import type { Hello } from '../../contract/hook.js';
import type { JobVersions } from '../../contract/job.js';
import type { Target } from '../target.js';
import type { WorkDeps } from '../types.js';

/** What a launch runs with, for whoever has to see its fault again. */
export class Versions {
  known: JobVersions;

  constructor(
    { interpreter, memory: { device } }: Target,
    private readonly deps: Pick<WorkDeps, 'persist' | 'log'>,
  ) {
    this.known = {
      oomtune: packageVersion(),
      node: process.versions.node,
      python: interpreter?.python ?? null,
      torch: interpreter?.torch ?? null,
      device_model: device.model,
      driver: device.driver,
    };
  }

  /** A program that the command starts by itself was not asked before: its hook tells, and the first one counts. */
  hear({ python, torch }: Hello): void {
    const { known } = this;
    this.known = { ...known, python: known.python ?? python ?? null, torch: known.torch ?? torch ?? null };
    if (this.known.python === known.python && this.known.torch === known.torch) return;
    void this.deps
      .persist({ versions: this.known })
      .catch((err: unknown) => this.deps.log.warn({ err }, 'the versions are not recorded'));
  }
}
