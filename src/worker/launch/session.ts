import { statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Log } from '../../common/log.js';
import { privateFolder } from '../../common/private-folder.js';
import type { Died, Loop } from '../../contract/hook.js';
import { type Exit, type LedgerReading, unseenEnd } from '../../contract/launch.js';
import type { Probe } from '../../contract/measurement.js';
import type { Run, Runtime } from '../../runtime/types.js';
import { type Measurement, stepsToGo } from '../search/worst-rank.js';
import { exitOf, sinceThen } from './ends.js';
import { HookReport, type SessionHooks } from './hook-report.js';
import { FORK_SERVER, type HookEvent, HookServer } from './hook-server.js';
import { MainEnd } from './main-end.js';
import { foretells, type HookMode, hookEnvironment, hookSocketPath, type SessionRequest } from './session-request.js';

/**
 * Probes that decide on a size also run samples of other lengths: changing lengths fragment a caching allocator's memory, and a
 * job must not be the first to meet that. Probes for speed do not.
 */
const VARIED: readonly Probe['purpose'][] = ['climb', 'bound', 'verify'];
/** A life that has not ended so long after it was told to is not replaced. On a busy machine one that has much to give back takes seconds. */
const LIFE_ENDS_WITHIN_MS = 15_000;

/** What the lives of a launch share. */
interface Launch {
  readonly run: Run;
  mode: HookMode;
  readonly hook: HookServer | null;
  hooks: SessionHooks;
  readonly log: Log | null;
  /** Of the whole launch. */
  readonly ended: Promise<Exit>;
  exit: Exit | null;
  /** A fork server waits. */
  forkServer: boolean;
  /** The arguments that it waits to be read, which its lives may differ by; null: their words are the launch's. */
  arguments: readonly string[] | null;
  /** Lives are of a job's spare, whose launch ended as the job did; the reason why we end them. Null: they are of a search's own launch. */
  search: { endedBy: Exit['ended_by'] } | null;
  /** Pids of ended lives, whose late messages are ignored. */
  readonly past: Set<number>;
  /** The current life, and its listener. */
  pid: number | null;
  hear: (event: HookEvent) => void;
}

/** A training process and its hook: opened, asked for probes, closed. A launch has one or, by forks, several in turn. */
export class Session extends HookReport {
  readonly run: Run;
  readonly startedAt = Date.now();
  exit: Exit | null = null;
  readonly logFile: string;
  /** Where its part of the log begins, in bytes. */
  logFrom = 0;

  /** The ledger after the lives before. */
  readonly #before: LedgerReading | null;
  readonly #ended: Promise<Exit>;
  #wake: () => void = () => {};
  #asked: Probe | null = null;
  /** Its end, by the fork server. */
  #died: Died | null = null;
  #leaves = false;
  /** How the job ended whose spare waits; null: it has not. */
  #failed: Exit | null = null;
  #mainEnd: MainEnd | null = null;
  #over: (exit: Exit) => void = () => {};

  private constructor(
    private readonly launch: Launch,
    /** The first is 1. */
    readonly life: number,
  ) {
    super(launch);
    this.run = launch.run;
    this.#before = life === 1 ? null : launch.run.ledger();
    this.logFile = launch.search === null ? launch.run.logFile : join(launch.run.dir, 'search.log');
    if (life > 1) this.logFrom = sizeOf(this.logFile);
    launch.hear = (event) => this.#hear(event);
    const alone = new Promise<Exit>((resolve) => {
      this.#over = resolve;
    });
    const together = launch.ended.then((exit) => {
      this.#mainEnd?.stop();
      const whole = launch.search === null || life === 1 ? exit : unseenEnd(launch.search.endedBy, exit.started_at);
      return { ...whole, ledger: sinceThen(exit.ledger, this.#before) };
    });
    this.#ended = Promise.race([together, alone]).then((exit) => {
      this.exit = exit;
      this.fallen.stop();
      this.#wake();
      return exit;
    });
  }

  static #of(run: Run, mode: HookMode, hook: HookServer | null, hooks: SessionHooks, log: Log | null): Session {
    const ended = run.wait().then((exit) => {
      launch.exit = exit;
      hook?.close();
      return exit;
    });
    const more = {
      exit: null,
      forkServer: false,
      arguments: null,
      search: null,
      past: new Set<number>(),
      pid: null,
      hear: () => {},
    };
    const launch: Launch = { run, mode, hook, hooks, log, ended, ...more };
    return new Session(launch, 1);
  }

  static async open(runtime: Runtime, request: SessionRequest, log: Log, hooks: SessionHooks = {}): Promise<Session> {
    privateFolder(request.dir);
    let session: Session | null = null;
    const early: HookEvent[] = [];
    let hook: HookServer | null = null;
    let env = request.env;
    if (request.hook.mode !== 'none') {
      const path = hookSocketPath(request.dir);
      hook = await HookServer.listen(path, log, (event) => (session ? session.launch.hear(event) : early.push(event)));
      env = { ...env, ...hookEnvironment(request, path) };
    }
    try {
      const run = await runtime.launch({ ...request, env });
      session = Session.#of(run, request.hook.mode, hook, hooks, log);
    } catch (error) {
      hook?.close();
      throw error;
    }
    for (const event of early) session.#hear(event);
    return session;
  }

  /** Takes over another process's run; its hook tells of it again, if it connects anew. */
  static async adopt(run: Run, log: Log, hooks: SessionHooks): Promise<Session> {
    let session: Session | null = null;
    const hear = (event: HookEvent): void => session?.launch.hear(event);
    const hook = await HookServer.listen(hookSocketPath(run.dir), log, hear).catch((err: unknown) => {
      log.debug({ err }, 'the hook of the run cannot be heard');
      return null;
    });
    session = Session.#of(run, 'apply', hook, hooks, log);
    return session;
  }

  get isLife(): boolean {
    return this.hello?.fork_server != null;
  }

  /** Whether its fork server can be forked again. */
  get renewable(): boolean {
    return this.launch.forkServer && this.launch.exit === null;
  }

  /** The last words of the launch's command that its lives may differ by; null: they do not. */
  get arguments(): readonly string[] | null {
    return this.renewable ? this.launch.arguments : null;
  }

  /** Whether a spare of the job waits. */
  get spared(): boolean {
    return this.renewable && this.launch.mode === 'apply';
  }

  /** The job needs its spare no more: it has shown that it fits, or no search follows. */
  dismiss(): void {
    if (!this.spared) return;
    this.#mainEnd?.stop();
    this.launch.forkServer = false;
    this.launch.hook?.tell(FORK_SERVER, { t: 'end' });
  }

  /** The first life of a search from the spare of this job, which has ended; null: not possible. */
  async search(env: Record<string, string>, timeoutSeconds: number): Promise<Session | null> {
    const { launch } = this;
    if (!this.spared || this.exit === null) return null;
    const search = { endedBy: 'supervisor-lost' as Exit['ended_by'] };
    Object.assign(launch, { mode: 'probe', search, hooks: { onRemark: launch.hooks.onRemark } });
    const timer = setTimeout(() => {
      search.endedBy = 'timeout';
      launch.run.end('timeout');
    }, timeoutSeconds * 1000);
    void launch.ended.finally(() => clearTimeout(timer));
    return this.renew(env);
  }

  /** Replaces this life by another, with these variables added to the launch's, and these for its `arguments`; null: not possible. */
  async renew(env: Record<string, string>, words: readonly string[] | null = null): Promise<Session | null> {
    const launch = this.launch;
    if (!this.renewable) return null;
    this.#leaves = true;
    launch.hook?.broadcast({ t: 'life', env, arguments: words === null ? null : [...words] });
    const gone = await Promise.race([this.#ended.then(() => true), delay(LIFE_ENDS_WITHIN_MS, false, { ref: false })]);
    if (!gone || !this.renewable) return null;
    return new Session(launch, this.life + 1);
  }

  /** Waits for the training loop of every rank; null: one ended or gave up before. */
  async ready(): Promise<Loop | null> {
    await this.#until(() => this.loops || this.isOver);
    return this.exit === null && this.loops ? this.loop : null;
  }

  /** Seconds from the start to the training loop; null: not reached yet. */
  get startupSeconds(): number | null {
    return this.loopsSince === null ? null : (this.loopsSince - this.startedAt) / 1000;
  }

  /** Has the hook run a probe (in a `measure` launch the first runs by itself); null: the process ended. */
  async ask(probe: Probe, carried: boolean): Promise<Measurement | null> {
    this.#asked = probe;
    if (!carried) {
      this.forgetMeasurements();
      this.launch.hook?.broadcast({
        t: 'probe',
        micro_batch: probe.micro_batch,
        accumulation: probe.accumulation,
        ...probe.rung,
        steps: probe.steps,
        batch: probe.batch ?? null,
        vary: VARIED.includes(probe.purpose),
        benchmark: !foretells(probe, false),
      });
    }
    let measurement = await this.#measurement();
    for (;;) {
      const steps = measurement === null || measurement.short ? 0 : stepsToGo(probe, measurement);
      if (steps === 0) return measurement;
      // Every rank gets the same number: a rank that stops earlier would leave the others waiting for its gradients.
      this.launch.hook?.broadcast({ t: 'more', steps });
      measurement = await this.#measurement();
    }
  }

  /** The measurement of all ranks; null: the process ended. */
  async #measurement(): Promise<Measurement | null> {
    await this.#until(() => this.hasMeasured || this.isOver);
    return this.hasMeasured ? this.takeMeasurement() : null;
  }

  /** The last probe, which a death is charged to. */
  get asked(): Probe | null {
    return this.#asked;
  }

  /** Hears no more of the job, which goes on: another process may. */
  letGo(): void {
    this.launch.hook?.close();
  }

  /** Tells the script to go on, to end, or to wait at its next checkpoint. */
  order(t: 'go' | 'end' | 'checkpoint'): void {
    this.launch.hook?.broadcast({ t });
  }

  /** Resolves when the whole tree has ended; for a life, when the hook tells so. */
  ended(): Promise<Exit> {
    return this.#ended;
  }

  /** Ends a probing process, by force if need be, and waits until nothing is left. */
  async close(timeoutSeconds = 5): Promise<Exit> {
    const { hook, mode, ended } = this.launch;
    if (this.launch.exit === null && hook !== null && (mode !== 'apply' || this.spared)) {
      hook.broadcast({ t: 'end' });
      const gone = await Promise.race([ended.then(() => true), delay(timeoutSeconds * 1000, false, { ref: false })]);
      if (gone) return ended;
    }
    if (this.launch.exit === null) this.run.end('cancel');
    return ended;
  }

  async #until(condition: () => boolean): Promise<void> {
    while (this.exit === null && !condition()) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  #hear(event: HookEvent): void {
    const launch = this.launch;
    if (launch.past.has(event.pid)) return;
    if (event.rank === FORK_SERVER) this.#hearForkServer(event);
    else if ('gone' in event) this.closed(event.pid);
    else {
      this.told(event.message, event.rank, event.pid);
      // By now all output of the life before has arrived.
      if (event.message.t === 'hello' && this.life > 1) this.logFrom = sizeOf(this.logFile);
    }
    this.#settle();
    this.#wake();
  }

  #hearForkServer(event: HookEvent): void {
    const launch = this.launch;
    if ('gone' in event) launch.forkServer = false;
    else if (event.message.t === 'fork_server') this.#waits(event.message.arguments);
    else if (event.message.t === 'life') launch.pid = event.message.pid;
    else if (event.message.t === 'died' && event.message.pid === launch.pid) this.#died = event.message;
  }

  /** A fork server waits: that of a search, or a job's spare. */
  #waits(words: readonly string[] | null): void {
    const { launch } = this;
    launch.forkServer = true;
    launch.arguments = words;
    if (launch.mode !== 'apply') return;
    this.#mainEnd ??= new MainEnd(this.run, (exit) => {
      this.#failed = exit;
      // What the job has said is still to be read, unless a process that it left keeps its connection.
      setTimeout(() => this.#failed && this.#over(this.#failed), 2000).unref();
      this.#settle();
    });
    if (!this.#mainEnd.start()) this.dismiss();
  }

  /** Ends the session once the life is dead and all its messages were read; without the hook's reason, by the launch's exit. */
  #settle(): void {
    const launch = this.launch;
    if (this.#failed !== null && this.exit === null && this.speaking.size === 0) {
      if (this.hello !== null) launch.past.add(this.hello.pid);
      this.#over(this.#failed);
    }
    if (this.#died === null || this.exit !== null || this.speaking.has(this.#died.pid)) return;
    if (this.exception === null && this.goodbye === null && !this.#leaves && launch.search === null) {
      launch.hook?.broadcast({ t: 'end' });
      return;
    }
    launch.past.add(this.#died.pid);
    this.#over(exitOf(this.#died, this.startedAt, sinceThen(this.run.ledger(), this.#before)));
  }
}

/** Bytes; 0: missing. */
const sizeOf = (path: string): number => statSync(path, { throwIfNoEntry: false })?.size ?? 0;
