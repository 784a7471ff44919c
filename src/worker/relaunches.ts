import type { Exit, Run } from '../runtime/types.js';
import type { Config } from '../tuner/types.js';
import { Headway } from './headway.js';
import { hasLostFolder, isLost, runWithoutFolder } from './lost.js';
import { stepDown } from './reuse.js';
import type { Session } from './session.js';
import type { Target } from './target.js';
import type { Diagnosis, WorkDeps, WorkRequest } from './types.js';

/** One launch of the job, and how it ended. */
export interface Attempt {
  session: Session;
  exit: Exit;
  /** Null: it ended well. */
  diagnosis: Diagnosis | null;
}

/** The next launch of a job, and why. */
export interface Relaunch {
  config: Config | null;
  /** What was recorded proved too large. */
  smaller: boolean;
  why: string;
}

/** When a job is launched again after an end that is not its own fault. `--retries` bounds it, over all processes that work at the job. */
export class Relaunches {
  readonly headway: Headway;
  readonly #request: WorkRequest;
  readonly #deps: WorkDeps;
  #made = 0;

  constructor(request: WorkRequest, deps: WorkDeps) {
    this.#request = request;
    this.#deps = deps;
    this.headway = new Headway(request, deps.log);
  }

  /**
   * Counts the launches that an earlier process made: one that was only recorded counts as none, one whose folder was removed since
   * as lost. Returns the run to take over.
   */
  async begin(): Promise<Run | null> {
    const runs = this.#request.launches.filter((launch) => launch.purpose === 'run');
    const made = await Promise.all(runs.map(({ dir }) => this.#find(dir)));
    const last = made.at(-1) ?? null;
    this.#made = made.filter((run) => run !== null).length - (last === null ? 0 : 1);
    return last;
  }

  async #find(dir: string): Promise<Run | null> {
    return (await this.#deps.runtime.adopt(dir)) ?? (hasLostFolder(dir) ? runWithoutFolder(dir) : null);
  }

  /** Null: the end stands. */
  async next(target: Target, { session, exit, diagnosis }: Attempt, config: Config | null): Promise<Relaunch | null> {
    if (this.#made >= this.#request.options.retries) return null;
    const next = isLost(exit)
      ? this.#afterLoss(config)
      : afterFailure(target, diagnosis, config, this.#request.options);
    if (next === null) return null;
    this.#made += 1;
    await this.headway.look(session.run.dir, exit);
    return next;
  }

  /** Whoever waits at a terminal sees that it is gone; a submitted job is owed its end. */
  #afterLoss(config: Config | null): Relaunch | null {
    if (this.#request.purpose !== 'submit') return null;
    return { config, smaller: false, why: 'The run was lost: launching it again' };
  }
}

function afterFailure(
  target: Target,
  diagnosis: Diagnosis | null,
  config: Config | null,
  options: WorkRequest['options'],
): Relaunch | null {
  if (diagnosis?.class !== 'device_oom' || config === null) return null;
  if (diagnosis.cure === 'expandable_segments' && target.useExpandableSegments()) {
    return { config, smaller: false, why: 'Out of memory by fragmentation: going on with expandable segments' };
  }
  // Against a leak, a neighbour, an evaluation, a checkpoint or the model itself no smaller batch helps: the diagnosis says what does.
  const smaller = diagnosis.cure === 'none' || diagnosis.cure === 'wait' ? null : stepDown(config, options);
  if (smaller === null) return null;
  const sizes = `going on with ${smaller.micro_batch} x ${smaller.accumulation}`;
  return { config: smaller, smaller: true, why: `Out of memory at micro-batch ${config.micro_batch}: ${sizes}` };
}
