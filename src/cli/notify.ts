import { longWaitMs } from '../common/bounds.js';
import { usageError } from '../common/errors.js';
import { ownUser } from '../common/user.js';
import type { JobOptions } from '../contract/options.js';
import type { FindBatchReport, RunReport } from '../contract/reports.js';
import type { Config } from '../contract/rung.js';
import { deliver, isUrl } from '../daemon/notify/deliver.js';
import { endedEvent, isSmaller, steppedDownEvent, type Told, waitingEvent } from '../daemon/notify/event.js';
import type { Progress } from '../worker/types.js';
import type { Context } from './context.js';

/** Whom to tell: `--notify`, else OOMTUNE_NOTIFY; null: nobody. Throws OOMTUNE_USAGE. */
export function notifyTarget(given: unknown, env: NodeJS.ProcessEnv = process.env): string | null {
  const target = given === undefined ? (env.OOMTUNE_NOTIFY ?? '') : String(given);
  if (target.trim() === '' && given === undefined) return null;
  const named = given === undefined ? 'OOMTUNE_NOTIFY' : '--notify';
  if (target.trim() === '' || target.includes('\0') || target.length > 4096)
    throw usageError(`Expected ${named} to be a command or a URL.`, "Write --notify 'notify-send oomtune'.");
  if (isUrl(target) && !URL.canParse(target))
    throw usageError(`Expected ${named} to be a command or a URL.`, 'Check the address after http:// or https://.');
  return target;
}

/** The environment of a submission with its `--notify`. */
export function withNotify(env: NodeJS.ProcessEnv, given: unknown): NodeJS.ProcessEnv {
  const { OOMTUNE_NOTIFY: _, ...rest } = env;
  const target = notifyTarget(given, env);
  return target === null ? rest : { ...rest, OOMTUNE_NOTIFY: target };
}

type End = Pick<Told, 'state' | 'failure' | 'exit_code' | 'config'>;

/** What is told of a report. */
export const toldOf = (report: RunReport | FindBatchReport): End =>
  'outcome' in report ? endOfRun(report) : endOfSearch(report);

const endOfRun = ({ outcome, failure, exit_code, config }: RunReport): End => ({
  state: outcome,
  failure: failure === null ? null : (failureOf(failure) as Told['failure']),
  exit_code,
  config: config as Config | null,
});

const endOfSearch = ({ status, failure, config }: FindBatchReport): End => ({
  state: status === 'found' ? 'succeeded' : status,
  failure: failure === undefined ? null : failureOf(failure),
  exit_code: null,
  config: config as Config | null,
});

const failureOf = <F extends { class: string; evidence: string | null }>(failure: F) => ({
  class: failure.class as NonNullable<Told['failure']>['class'],
  evidence: failure.evidence,
  fields: {},
});

/** Tells of a command in the foreground; nothing of it changes what becomes of the command. */
export class ForegroundNotice {
  readonly #told: Told;
  readonly #sent: Promise<void>[] = [];
  #waiting: NodeJS.Timeout | null = null;
  #waited = false;

  constructor(
    private readonly target: string,
    { job, name, host }: Pick<Told, 'job' | 'name'> & { host: string },
    private readonly options: Pick<JobOptions, 'cwd'>,
    private readonly context: Pick<Context, 'out' | 'interruptedBy'>,
  ) {
    const now = new Date().toISOString();
    const nothing = { reason: null, config: null, failure: null, exit_code: null, started_at: null, ended_at: null };
    this.#told = { ...nothing, job, name, owner: ownUser(), state: 'queued', host, devices: [], submitted_at: now };
  }

  see(event: Progress): void {
    const told = this.#told;
    if (event.type === 'waiting') {
      told.reason = event.reason;
      if (!this.#waited) this.#waiting ??= setTimeout(() => this.#waitsForLong(), longWaitMs()).unref();
      return;
    }
    if (this.#waiting !== null) clearTimeout(this.#waiting);
    this.#waiting = null;
    told.reason = null;
    if (event.type === 'device') told.devices = [event.device.id];
    if (event.type === 'launch' || event.type === 'running') {
      told.started_at ??= new Date().toISOString();
      told.state = event.type === 'running' ? 'running' : 'searching';
    }
    if (event.type === 'lasts') told.config = event.config;
    if (event.type !== 'running' || event.config === null) return;
    const before = told.config;
    told.config = event.config;
    if (before !== null && isSmaller(event.config, before)) this.#send(steppedDownEvent(told, before, event.config));
  }

  /** Does the work and tells of its end, also of one by an error; a person who pressed Ctrl-C knows. */
  async around<R>(work: () => Promise<R>, endOf: (result: R) => End): Promise<R> {
    try {
      const result = await work();
      this.#end(endOf(result));
      return result;
    } catch (error) {
      const state = this.context.interruptedBy === null ? 'failed' : 'cancelled';
      this.#told.reason = (error as Error).message;
      this.#end({ state, failure: null, exit_code: null, config: this.#told.config });
      throw error;
    } finally {
      await Promise.all(this.#sent);
    }
  }

  #end(end: End): void {
    if (this.#waiting !== null) clearTimeout(this.#waiting);
    if (this.context.interruptedBy === 130) return;
    Object.assign(this.#told, end, { ended_at: new Date().toISOString() });
    this.#send(endedEvent(this.#told));
  }

  #waitsForLong(): void {
    this.#waited = true;
    this.#waiting = null;
    this.#send(waitingEvent(this.#told));
  }

  #send(event: ReturnType<typeof endedEvent>): void {
    const receiver = { target: this.target, environment: process.env, cwd: this.options.cwd };
    const sent = deliver(receiver, event).then((why) => {
      if (why !== null) this.context.out.note(`note: a notification could not be told: ${why}`);
    });
    this.#sent.push(sent);
  }
}
