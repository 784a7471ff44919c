import { existsSync } from 'node:fs';
import type { Diagnosis } from '../../contract/diagnosis.js';
import type { Exit } from '../../contract/launch.js';
import type { Config } from '../../contract/rung.js';
import type { Run } from '../../runtime/types.js';
import { halved, stepDown } from '../../tuner/index.js';
import { isLost, runWithoutFolder } from '../launch/ends.js';
import { neededBytes } from '../search/observe.js';
import type { Target } from '../target.js';
import type { WorkDeps, WorkRequest } from '../types.js';
import type { Attempt } from './attempts.js';
import type { Ended, Less } from './checkpoint-end.js';
import { JobProgress } from './job-progress.js';
import { resumes, secondsAtStake } from './resumption.js';

export interface Relaunch {
  config: Config | null;
  /** The recorded size proved too large. */
  smaller: boolean;
  why: string;
  /** False: it starts from the beginning. */
  resumes: boolean;
}

/** The next launch before it is known whether it resumes. */
type Wanted = Omit<Relaunch, 'resumes'>;

/** Relaunches a job after an end that was not its fault, up to `--retries` times over all processes of its worker. */
export class Relaunches {
  readonly jobProgress: JobProgress;
  #made = 0;
  /** The size of a request larger than the device, which ended the last launch; null: none. */
  #asked: number | null = null;
  #asksAgain = false;
  /** What ran when a launch was ended at a checkpoint, to go on in less memory; null: that has not been done. */
  #whole: Config | null = null;
  /** Why it was not relaunched although that would have helped, and the remedy; null: not so. */
  withheld: string | null = null;

  constructor(
    private readonly request: WorkRequest,
    private readonly deps: WorkDeps,
  ) {
    this.jobProgress = new JobProgress(request, deps.log);
  }

  /** Counts the launches of an earlier process (only recorded: none; folder removed: lost). Returns the run to take over. */
  async begin(): Promise<Run | null> {
    const runs = this.request.launches.filter((launch) => launch.purpose === 'run');
    // A launch's folder is made before its record, so a missing one was removed, and how it ended is lost
    const find = async ({ dir }: { dir: string }): Promise<Run | null> =>
      (await this.deps.runtime.adopt(dir)) ?? (existsSync(dir) ? null : runWithoutFolder(dir));
    const made = await Promise.all(runs.map(find));
    const last = made.at(-1) ?? null;
    this.#made = made.filter((run) => run !== null).length - (last === null ? 0 : 1);
    // What the search after a run as it stands has found was launched for the first time
    if (runs.some(({ config }, at) => config !== null && runs[at - 1]?.config === null)) this.#made -= 1;
    return last;
  }

  /** Null: no relaunch. */
  async next(target: Target, { session, exit, diagnosis }: Attempt, config: Config | null): Promise<Relaunch | null> {
    if (this.#asksTheSame(diagnosis)) return null;
    const whole = this.#whole;
    if (whole !== null && session.goodbye?.reason === 'uncut') {
      const why = 'Its batch cannot be cut at the model’s call: going on as before';
      return { config: whole, smaller: false, why, resumes: true };
    }
    if (this.#made >= this.request.options.retries || exit.stuck !== undefined) return null;
    const next = isLost(exit)
      ? this.#afterLoss(config)
      : diagnosis?.cure === 'wait'
        ? await this.#afterNeighbour(target, exit, diagnosis, config)
        : afterFailure(target, diagnosis, config, this.request.options);
    if (next === null) return null;
    const resuming = await resumes(this.request, target, Date.parse(exit.started_at));
    const { config: at } = next;
    const sizes = at === null ? 'as it stands' : `at ${at.micro_batch} x ${at.accumulation}`;
    this.withheld = resuming ? null : this.#tooMuchToRepeat(exit, sizes);
    if (this.withheld !== null) return null;
    this.#made += 1;
    await this.jobProgress.look(session.run.dir, exit);
    return { ...next, resumes: resuming && this.jobProgress.made };
  }

  /** After a launch that was ended at a checkpoint from which the next one resumes. */
  atCheckpoint({ config, how, step }: Ended, before: Config): Relaunch {
    this.#made += 1;
    this.#whole = before;
    const why = `Memory lay in pieces, and it was ended at its checkpoint of step ${step}: going on with ${how}`;
    return { config, smaller: false, why, resumes: true };
  }

  /** What a launch may go on with that was ended ahead of running out of memory; null: nothing, or it may not be launched again. */
  less(target: Target, config: Config): Less | null {
    const { options } = this.request;
    if (this.#made >= options.retries || this.#whole?.micro_batch === config.micro_batch) return null;
    const less = lessMemory(target, config, options);
    return less === null || less.config.micro_batch === config.micro_batch || target.accumulates ? less : null;
  }

  /** How a job that ran out of memory as it stands begins after the search; null: too much would be repeated. */
  async afterMisfit(target: Target, { session, exit }: Attempt): Promise<string | null> {
    const resuming = await resumes(this.request, target, Date.parse(exit.started_at));
    this.withheld = resuming ? null : this.#tooMuchToRepeat(exit, 'at what fits');
    if (this.withheld !== null) return null;
    await this.jobProgress.look(session.run.dir, exit);
    return resuming && this.jobProgress.made ? 'again, resuming' : 'again from the beginning';
  }

  /** What a scheduler's next start of a job that ran out of memory should do otherwise; null: starting it again would not help. */
  forScheduler(target: Target, { exit, diagnosis }: Attempt, config: Config | null): Wanted | null {
    if (!this.request.options.requeue || exit.stuck !== undefined || this.#asksAgain) return null;
    return afterFailure(target, diagnosis, config, this.request.options);
  }

  /** A request as large at half the micro-batch does not depend on it. */
  #asksTheSame(diagnosis: Diagnosis | null): boolean {
    const before = this.#asked;
    this.#asked = diagnosis?.reason === 'asked' ? (diagnosis.memory?.asked_bytes ?? null) : null;
    this.#asksAgain = this.#asked !== null && this.#asked === before;
    return this.#asksAgain;
  }

  /** `run` repeats much work only with `--restart`; a submitted job always goes on. */
  #tooMuchToRepeat({ started_at, ended_at }: Exit, sizes: string): string | null {
    const { purpose, options } = this.request;
    if (purpose !== 'run' || options.restart) return null;
    const seconds = Math.round((Date.parse(ended_at) - Date.parse(started_at)) / 1000);
    if (!(seconds > secondsAtStake())) return null;
    return `It ran for ${seconds} s, and nothing shows that it would resume: \`--restart\` runs it again from the beginning, ${sizes}. With checkpoints, --resume-arg ARG says how it goes on from them.`;
  }

  /** Repeats the same size once others have freed their memory. */
  async #afterNeighbour(
    target: Target,
    exit: Exit,
    diagnosis: Diagnosis,
    config: Config | null,
  ): Promise<Wanted | null> {
    const needed = neededBytes(exit, diagnosis) ?? target.budgetBytes;
    if (!(await target.memory.waitForMemory(Math.min(needed, target.budgetBytes)))) return null;
    const size = config === null ? '' : ` at the same size, ${config.micro_batch} x ${config.accumulation}`;
    const why = `Other processes held the memory, which is free now: launching it again${size}`;
    return { config, smaller: false, why };
  }

  /** `run` ends with a lost launch; a submitted job always goes on. */
  #afterLoss(config: Config | null): Wanted | null {
    if (this.request.purpose !== 'submit') return null;
    return { config, smaller: false, why: 'The run was lost: launching it again' };
  }
}

function afterFailure(
  target: Target,
  diagnosis: Diagnosis | null,
  config: Config | null,
  options: WorkRequest['options'],
): Wanted | null {
  if (diagnosis?.class !== 'device_oom' || config === null) return null;
  // A smaller batch does not help against a leak, a neighbour, an evaluation, a checkpoint or the model itself.
  const less = diagnosis.cure === 'none' || diagnosis.cure === 'wait' ? null : lessMemory(target, config, options);
  if (less === null) return null;
  const smaller = less.config.micro_batch < config.micro_batch;
  const fragmented = !smaller && diagnosis.cure === 'expandable_segments';
  const where = fragmented ? 'by fragmentation' : `at micro-batch ${config.micro_batch}`;
  return { config: less.config, smaller, why: `Out of memory ${where}: going on with ${less.how}` };
}

/** First of all expandable segments: they are free, and near its limit a caching allocator mostly lacks a contiguous piece. */
function lessMemory(target: Target, config: Config, options: WorkRequest['options']): Less | null {
  if (!config.expandable_segments && target.expandableSegments === 'possible')
    return { config: { ...config, expandable_segments: true }, how: 'expandable segments' };
  const smaller = (target.keepsUnknown ? halved : stepDown)(config, options);
  return smaller && { config: smaller, how: `${smaller.micro_batch} x ${smaller.accumulation}` };
}
