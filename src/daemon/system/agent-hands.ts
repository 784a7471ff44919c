import type { JobRecord } from '../../contract/job.js';
import type { Exit } from '../../contract/launch.js';
import type { Notification } from '../../contract/notification.js';
import type { RunReport } from '../../contract/reports.js';
import { runReport } from '../../contract/reports.js';
import { agentExit, agentProgress } from '../../contract/system.js';
import type { StoredJob } from '../../store/index.js';
import { letsGo } from '../../worker/launch/detached.js';
import type { Progress, WorkRequest } from '../../worker/types.js';
import { type AdoptedRun, type HandedDeps, type Hands, HandsLost } from '../hands.js';
import { LaunchEnvironment } from '../launch-environment.js';
import type { AgentJobs } from './agent-jobs.js';
import type { Agents } from './agents.js';

/** A job's files and processes, by way of its owner's agent: nothing of them is touched with root's rights. */
export class AgentHands implements Hands {
  constructor(
    private readonly job: StoredJob,
    private readonly uid: number,
    private readonly agents: Agents,
    private readonly jobs: AgentJobs,
    readonly runs: string,
  ) {}

  async runJob({ environment: _, ...request }: WorkRequest, deps: HandedDeps): Promise<RunReport> {
    const { jobId } = request;
    const stop = (): void => {
      const how = letsGo(deps.signal) ? 'let go' : 'end';
      this.agents.call(this.uid, 'stop', [jobId, how]).catch(() => {}); // it is gone, which the run tells
    };
    const work = this.jobs.begin(this.uid, this.job, deps);
    deps.signal.addEventListener('abort', stop, { once: true });
    let gone = false;
    try {
      deps.signal.throwIfAborted();
      const report = await this.agents.call(this.uid, 'run', [this.job, request], (event) => tell(event, deps));
      const { job, ...read } = runReport.parse(report);
      return { ...read, job: job === jobId ? job : jobId } as RunReport;
    } catch (error) {
      gone = error instanceof HandsLost;
      throw error;
    } finally {
      deps.signal.removeEventListener('abort', stop);
      await work.end(gone || letsGo(deps.signal));
    }
  }

  adopt(dir: string): Promise<AdoptedRun | null> {
    return new AgentRuns(this.uid, this.agents).adopt(dir);
  }

  setPaused(dir: string, paused: boolean): Promise<number> {
    return this.agents.call<number>(this.uid, 'pause', [dir, paused]);
  }

  async dropEarlierTries({ job, epoch }: Pick<StoredJob, 'job' | 'epoch'>): Promise<void> {
    if (epoch > 1) await this.agents.call(this.uid, 'drop', [{ job, epoch }]);
  }

  async notify(job: StoredJob, event: Notification): Promise<string | null> {
    const why = await this.agents.call<unknown>(this.uid, 'notify', [job, event]);
    return why === null ? null : String(why).slice(0, 500);
  }

  environmentOf(job: StoredJob): LaunchEnvironment {
    return new AgentEnvironment(job, (name) => this.agents.call(this.uid, name, [job]));
  }

  tailOf(_launch: { job: string } & JobRecord['launches'][number]): null {
    return null;
  }
}

/** Runs of a user that were launched before. */
export class AgentRuns {
  constructor(
    private readonly uid: number,
    private readonly agents: Agents,
  ) {}

  async adopt(dir: string): Promise<AdoptedRun | null> {
    if (!(await this.agents.call<boolean>(this.uid, 'adopt', [dir]))) return null;
    let asked: Parameters<AdoptedRun['end']>[0] | null = null;
    const end = (): void => {
      if (asked !== null) this.agents.call(this.uid, 'end', [dir, asked]).catch(() => {}); // it is gone, which the wait hears
    };
    return {
      end: (reason) => {
        asked = reason;
        end();
      },
      wait: async (): Promise<Exit> => ({ ...agentExit.parse(await this.#wait(dir, end)), ledger: null }),
    };
  }

  /** An agent that is gone meanwhile is started anew, is told again to end it where the one before was, and waits again. */
  async #wait(dir: string, end: () => void): Promise<unknown> {
    for (let tries = 0; ; tries += 1) {
      try {
        return await this.agents.call(this.uid, 'wait', [dir]);
      } catch (error) {
        if (!(error instanceof HandsLost) || tries === 10) throw error;
        if (!(await this.agents.call<boolean>(this.uid, 'adopt', [dir]))) throw error;
        end();
      }
    }
  }
}

/** The agent alone reads it: here is known what is missing. */
class AgentEnvironment extends LaunchEnvironment {
  constructor(
    job: StoredJob,
    private readonly ask: (name: 'environment' | 'forget') => Promise<unknown>,
  ) {
    super(job);
  }

  override async prepare(): Promise<void> {
    const withheld = await this.ask('environment');
    this.withheld = Array.isArray(withheld) ? withheld.slice(0, 1000).map((name) => String(name).slice(0, 4096)) : [];
  }

  override environment(): Record<string, string> {
    return {};
  }

  override forget(): void {
    this.ask('forget').catch(() => {}); // what was left goes when agents tidy
  }
}

function tell(event: unknown, deps: HandedDeps): void {
  const read = agentProgress.safeParse(event);
  if (read.success) deps.progress(read.data as unknown as Progress);
}
