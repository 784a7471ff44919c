import type { Log } from '../common/log.js';
import type { JobRecord } from '../contract/job.js';
import type { Notification } from '../contract/notification.js';
import type { RunReport } from '../contract/reports.js';
import { setPaused } from '../runtime/ending.js';
import type { Run, Runtime } from '../runtime/types.js';
import type { Store, StoredJob } from '../store/index.js';
import type { WorkDeps, WorkRequest } from '../worker/types.js';
import { dropEarlierTries } from './earlier-tries.js';
import { LaunchEnvironment } from './launch-environment.js';
import { LogTail } from './log-tail.js';
import { tellOf } from './notify/tell.js';

/** The worker's functions that the daemon calls. */
export interface WorkerApi {
  runJob(request: WorkRequest, deps: WorkDeps): Promise<RunReport>;
}

/** What the daemon gives the worker; what it runs with is the hands' own. */
export type HandedDeps = Omit<WorkDeps, 'runtime'>;

/** A run that somebody else started: it can be waited for, and ended. */
export type AdoptedRun = Pick<Run, 'end' | 'wait'>;

/** Who worked on the job is gone; what was launched goes on under its supervisor. */
export class HandsLost extends Error {
  override name = 'HandsLost';

  constructor(
    message: string,
    /** Whether there will be others. */
    readonly again = true,
  ) {
    super(message);
  }
}

/** Everything that is done with a job's files and processes. Where one daemon serves several users an agent of the job's owner does it. */
export interface Hands {
  runJob(request: WorkRequest, deps: HandedDeps): Promise<RunReport>;
  adopt(dir: string): Promise<AdoptedRun | null>;
  /** Stops or continues what a launch runs. Returns how many processes. */
  setPaused(dir: string, paused: boolean): Promise<number>;
  /** Removes what earlier tries of the job left. */
  dropEarlierTries(job: Pick<StoredJob, 'job' | 'epoch'>): Promise<void>;
  environmentOf(job: StoredJob): LaunchEnvironment;
  /** Tells whom its submitter named by `--notify`. Returns why it could not; null: it was told. */
  notify(job: StoredJob, event: Notification): Promise<string | null>;
  /** Copies the end of the launch's log for other hosts; null: nobody may read it but its owner, on this one. */
  tailOf(launch: { job: string } & JobRecord['launches'][number], goOn: boolean): Pick<LogTail, 'close'> | null;
  /** Below it a job's launches stand, each in a folder of the job's. */
  readonly runs: string;
}

/** With the rights of the daemon: jobs of who runs it. */
export class OwnHands implements Hands {
  readonly runs: string;

  constructor(
    private readonly parts: { runtime: Runtime; worker: WorkerApi; store: Store; log: Log },
    runs: string,
  ) {
    this.runs = runs;
  }

  runJob(request: WorkRequest, deps: HandedDeps): Promise<RunReport> {
    return this.parts.worker.runJob(request, { ...deps, runtime: this.parts.runtime });
  }

  adopt(dir: string): Promise<AdoptedRun | null> {
    return this.parts.runtime.adopt(dir);
  }

  /** The run with its ledger. */
  runOf(dir: string): Promise<Run | null> {
    return this.parts.runtime.adopt(dir);
  }

  setPaused(dir: string, paused: boolean): Promise<number> {
    return setPaused(dir, paused);
  }

  async dropEarlierTries(job: Pick<StoredJob, 'job' | 'epoch'>): Promise<void> {
    dropEarlierTries(this.runs, job);
  }

  notify(job: StoredJob, event: Notification): Promise<string | null> {
    return tellOf(job, event);
  }

  environmentOf(job: StoredJob): LaunchEnvironment {
    return new LaunchEnvironment(job);
  }

  tailOf(launch: { job: string } & JobRecord['launches'][number], goOn: boolean): LogTail {
    const { store, log } = this.parts;
    return new LogTail({ logs: store.logs, log: log.child({ job: launch.job }) }, launch, goOn);
  }
}
