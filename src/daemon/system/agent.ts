/** The part that works with a user's rights: one process for each user who has jobs. It ends with its pipe to the daemon. */
import { Socket } from 'node:net';
import { stateFolder, useHome } from '../../common/home.js';
import { createLog } from '../../common/log.js';
import type { JobRecord } from '../../contract/job.js';
import type { Notification } from '../../contract/notification.js';
import type { Recommendation } from '../../contract/recommendation.js';
import { createRuntime } from '../../runtime/index.js';
import type { Run } from '../../runtime/types.js';
import type { Store, StoredJob } from '../../store/index.js';
import { Detached } from '../../worker/launch/detached.js';
import type { Progress, WorkRequest } from '../../worker/types.js';
import { type AdoptedRun, OwnHands } from '../hands.js';
import { LaunchEnvironment } from '../launch-environment.js';
import { tellOf } from '../notify/tell.js';
import { tidyHourly } from '../retention.js';
import { forgetEnvironment, savedShell, sweepEnvironments } from '../saved-environment.js';
import { AGENT_ERRORS } from './agent-errors.js';
import { Channel } from './channel.js';
import { remoteLeasing } from './remote-leasing.js';

/** The descriptor of the pipe to the daemon. */
export const AGENT_PIPE = 3;
/** For jobs to be let go of when the daemon is gone. */
const LET_GO_MS = 5000;
/** Runs whose ledgers are read again and again. */
const MOST_WATCHED = 64;

/** Resolves when the daemon is gone. */
export async function runAgent(home: string): Promise<void> {
  useHome(home);
  const agent = new Agent(await import('../../worker/index.js'));
  await agent.closed;
}

type Answers = Record<string, (...args: never[]) => Promise<unknown>>;

class Agent {
  readonly closed: Promise<void>;
  readonly #log = createLog('agent');
  readonly #channel: Channel;
  readonly #hands: OwnHands;
  readonly #jobs = new Map<string, AbortController>();
  readonly #runs = new Map<string, AdoptedRun>();
  readonly #watched = new Map<string, Run>();
  readonly #working = new Set<Promise<unknown>>();

  constructor(worker: ConstructorParameters<typeof OwnHands>[0]['worker']) {
    const log = this.#log;
    this.#hands = new OwnHands({ runtime: createRuntime(), worker, store: null as never, log }, stateFolder('runs'));
    let done: () => void = () => {};
    this.closed = new Promise((resolve) => {
      done = resolve;
    });
    this.#channel = new Channel(new Socket({ fd: AGENT_PIPE }), {
      errors: AGENT_ERRORS,
      onCall: (name, args, { signal, note }) => this.#answer(name, args, signal, note),
      onClose: () => void this.#letGo().then(done),
    });
  }

  async #letGo(): Promise<void> {
    for (const job of this.#jobs.values()) job.abort(new Detached());
    const late = new Promise((resolve) => setTimeout(resolve, LET_GO_MS).unref());
    await Promise.race([Promise.allSettled(this.#working), late]);
  }

  async #answer(name: string, args: unknown[], signal: AbortSignal, note: (value: unknown) => void): Promise<unknown> {
    const answers: Answers = {
      hello: async () => ({ pid: process.pid }),
      environment: async (job: StoredJob) => {
        const environment = new LaunchEnvironment(job);
        await environment.prepare();
        return environment.withheld;
      },
      notify: (job: StoredJob, event: Notification) => tellOf(job, event),
      forget: async (job: StoredJob) => forgetEnvironment(job.job, job.environment),
      run: (job: StoredJob, request: Omit<WorkRequest, 'environment'>) => this.#run(job, request, note),
      stop: async (job: string, how: 'let go' | 'end') =>
        this.#jobs.get(job)?.abort(how === 'let go' ? new Detached() : new Error('The job is to end.')),
      adopt: async (dir: string) => (await this.#adopt(dir)) !== null,
      end: async (dir: string, reason: 'cancel' | 'timeout') => (await this.#adopted(dir))?.end(reason),
      wait: async (dir: string) => {
        const { ledger: _, ...exit } = (await (await this.#adopted(dir))?.wait()) ?? { ledger: null };
        this.#runs.delete(dir);
        return exit;
      },
      ledger: async (dir: string) => (await this.#watch(dir))?.ledger() ?? null,
      pause: (dir: string, paused: boolean) => this.#hands.setPaused(dir, paused),
      drop: (job: StoredJob) => this.#hands.dropEarlierTries(job),
      tidy: (url: string) => this.#tidy(url),
    };
    signal.throwIfAborted();
    const answered = Object.hasOwn(answers, name) ? answers[name]?.(...(args as never[])) : undefined;
    if (answered === undefined) throw new Error(`an agent has no ${name}`);
    this.#working.add(answered);
    return answered.finally(() => this.#working.delete(answered));
  }

  async #run(job: StoredJob, request: Omit<WorkRequest, 'environment'>, note: (value: unknown) => void) {
    const id = job.job;
    const controller = new AbortController();
    this.#jobs.set(id, controller);
    const call = <T>(name: string, ...args: unknown[]): Promise<T> => this.#channel.call<T>(name, [id, ...args]);
    const shell = savedShell(id, job.environment);
    try {
      return await this.#hands.runJob(
        {
          ...request,
          environment: new LaunchEnvironment(job).environment(),
          ...(shell === null ? {} : { shell }),
        },
        {
          records: async () => ({
            recommendations: {
              get: (key: string) => call<Recommendation | null>('recommendations.get', key),
              put: (found: Recommendation) => call<void>('recommendations.put', found),
              demote: (key: string, knownBad: number) => call<void>('recommendations.demote', key, knownBad),
            },
            leasing: remoteLeasing(this.#channel),
          }),
          signal: controller.signal,
          progress: (event) => {
            const told = toldOf(event);
            if (told !== null) note(told);
          },
          persist: (patch: Partial<JobRecord>) => call<void>('persist', patch),
          log: this.#log.child({ job: id }),
        },
      );
    } finally {
      this.#jobs.delete(id);
    }
  }

  async #adopt(dir: string): Promise<AdoptedRun | null> {
    const run = await this.#hands.adopt(dir);
    if (run !== null) this.#runs.set(dir, run);
    return run;
  }

  /** It may have been adopted by an agent before this one. */
  async #adopted(dir: string): Promise<AdoptedRun | null> {
    return this.#runs.get(dir) ?? this.#adopt(dir);
  }

  async #watch(dir: string): Promise<Run | null> {
    const known = this.#watched.get(dir) ?? (await this.#hands.runOf(dir));
    if (this.#watched.size >= MOST_WATCHED) this.#watched.clear();
    if (known !== null) this.#watched.set(dir, known);
    return known;
  }

  /** Old folders of jobs that have ended go, as everywhere, and environments that nobody needs. `url`: of the daemon's store, as its clients know it. */
  async #tidy(url: string): Promise<void> {
    const jobs = {
      liveIds: () => this.#channel.call<string[]>('jobs.liveIds', ['']),
      environments: (ids: string[]) => this.#channel.call('jobs.environments', ['', ids]),
    };
    const store = { url, keys: { prefix: '' }, jobs } as unknown as Store;
    await tidyHourly(async () => store, this.#log);
    await sweepEnvironments(store, () => false);
  }
}

/** What the daemon wants to know of it; null: nothing. */
function toldOf(event: Progress): unknown {
  const { type } = event;
  if (type === 'waiting' || type === 'life' || type === 'note') return event;
  if (type === 'launch') return { ...event, rung: null };
  if (type === 'probing') return { type, launch: event.launch, probe: { micro_batch: event.probe.micro_batch } };
  if (type === 'probe') return { type, record: event.record };
  if (type === 'lasts') return { type, record: event.record };
  return type === 'running' ? { type, watched: event.watched } : null;
}
