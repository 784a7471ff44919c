import type { Log } from '../../common/log.js';
import { privateFolder } from '../../common/private-folder.js';
import type { Bye, Hello, HookException, HookOrder, Loop, Measured, Step } from '../../contract/hook.js';
import type { Exit } from '../../contract/launch.js';
import type { Probe } from '../../contract/measurement.js';
import type { Cut } from '../../contract/rung.js';
import type { Run, Runtime } from '../../runtime/types.js';
import { stepsToGo } from '../search/rest.js';
import { type Measurement, worstRank } from '../search/worst-rank.js';
import { hookEnvironment, hookSocketPath } from './hook-environment.js';
import { type HookEvent, HookServer } from './hook-server.js';
import type { HookMode, SessionRequest } from './session-request.js';

/**
 * What decides on a size runs with samples of other lengths than the longest, too: lengths that change are what a caching
 * allocator's memory falls to pieces over, and a fresh process must not be the first to see it. Not so for speeds.
 */
const VARIED: readonly Probe['purpose'][] = ['climb', 'bound', 'verify'];

export interface SessionHooks {
  onStep?: (step: Step) => void;
  onCut?: (cut: Cut) => void;
  onRemark?: (kind: 'eval' | 'save' | 'warn', message: string) => void;
}

/** Codes of warnings that a launch may have: what the hook knows, with room to grow. */
const MOST_WARNINGS = 64;

/** One launch with the hook's conversation: opened, asked for probes, closed. */
export class Session {
  readonly run: Run;
  readonly startedAt = Date.now();
  /** First exception that a rank reported: on several ranks the first has the cause. */
  exception: HookException | null = null;
  hello: Hello | null = null;
  loop: Loop | null = null;
  /** Why the hook took no part after all; null: it did, or has not said. */
  bye: Bye | null = null;
  exit: Exit | null = null;
  /** When the training loop asked for its first batch, in milliseconds since the epoch; null: it has not yet. */
  loopsSince: number | null = null;
  steps = 0;
  /** Where the hook cuts batches; null: it has not said that it does. */
  cut: Cut | null = null;
  /** Codes of what the hook warned of: `dataset_on_device`, `eval_builds_graph`, … */
  readonly warnings = new Set<string>();

  readonly #mode: HookMode;
  readonly #hook: HookServer | null;
  readonly #hooks: SessionHooks;
  readonly #measured = new Map<number, Measured>();
  readonly #looping = new Set<number>();
  readonly #said = new Set<string>();
  readonly #ended: Promise<Exit>;
  #wake: () => void = () => {};
  #asked: Probe | null = null;

  private constructor(run: Run, mode: HookMode, hook: HookServer | null, hooks: SessionHooks) {
    this.run = run;
    this.#mode = mode;
    this.#hook = hook;
    this.#hooks = hooks;
    this.#ended = run.wait().then((exit) => {
      this.exit = exit;
      this.#hook?.close();
      this.#wake();
      return exit;
    });
  }

  static async open(runtime: Runtime, request: SessionRequest, log: Log, hooks: SessionHooks = {}): Promise<Session> {
    privateFolder(request.dir);
    let session: Session | null = null;
    const early: HookEvent[] = [];
    let hook: HookServer | null = null;
    let env = request.env;
    if (request.mode !== 'none') {
      const path = hookSocketPath(request.dir);
      hook = await HookServer.listen(path, log, (event) => (session ? session.#hear(event) : early.push(event)));
      env = { ...env, ...hookEnvironment(request, path) };
    }
    try {
      const run = await runtime.launch({
        jobId: request.jobId,
        launch: request.launch,
        argv: request.argv,
        cwd: request.cwd,
        env,
        dir: request.dir,
        devices: request.devices,
        budgetBytes: request.budgetBytes,
        timeoutSeconds: request.timeoutSeconds,
        graceSeconds: request.graceSeconds,
        output: request.output,
        ...(request.tied === undefined ? {} : { tied: request.tied }),
        ...(request.givenUp === undefined ? {} : { givenUp: request.givenUp }),
      });
      session = new Session(run, request.mode, hook, hooks);
    } catch (error) {
      hook?.close();
      throw error;
    }
    for (const event of early) session.#hear(event);
    return session;
  }

  /** Takes over a run that an earlier process launched; its hook reports no more. */
  static adopt(run: Run): Session {
    return new Session(run, 'none', null, {});
  }

  /** Waits until every rank's training loop asks for its first batch; null when one ended or gave up before. */
  async ready(): Promise<Loop | null> {
    await this.#until(() => this.#looping.size >= this.#world || this.bye !== null || this.exception !== null);
    return this.exit === null && this.#looping.size >= this.#world ? this.loop : null;
  }

  /** Seconds from the start to the training loop's first batch; null: there was none yet. */
  get startupSeconds(): number | null {
    return this.loopsSince === null ? null : (this.loopsSince - this.startedAt) / 1000;
  }

  get #world(): number {
    return this.hello?.world_size ?? 1;
  }

  /** Has the hook run a probe (the first of a `measure` launch runs by itself); null when the process ended instead. */
  async ask(probe: Probe, carried: boolean): Promise<Measurement | null> {
    this.#asked = probe;
    if (!carried) {
      this.#measured.clear();
      this.#hook?.broadcast({
        t: 'probe',
        micro_batch: probe.micro_batch,
        accumulation: probe.accumulation,
        ...probe.rung,
        steps: probe.steps,
        batch: probe.batch ?? null,
        vary: VARIED.includes(probe.purpose),
      });
    }
    let measurement = await this.#measurement();
    for (;;) {
      const steps = measurement === null || measurement.short ? 0 : stepsToGo(probe, measurement);
      if (steps === 0) return measurement;
      // Every rank gets the same number, or those that stop would leave the others waiting for their gradients.
      this.#hook?.broadcast({ t: 'more', steps });
      measurement = await this.#measurement();
    }
  }

  /** What all ranks measured; null when the process ended instead. */
  async #measurement(): Promise<Measurement | null> {
    await this.#until(() => this.#measured.size >= this.#world || this.bye !== null || this.exception !== null);
    if (this.#measured.size < this.#world) return null;
    const worst = worstRank([...this.#measured.values()]);
    this.#measured.clear();
    return worst;
  }

  /** The probe that was asked for last: whom a death is charged to. */
  get asked(): Probe | null {
    return this.#asked;
  }

  /** Lets the script go on as it stands. */
  release(): void {
    this.#hook?.broadcast({ t: 'go' });
  }

  /** Waits for the end of the whole tree. */
  ended(): Promise<Exit> {
    return this.#ended;
  }

  /** Ends a probing process kindly, then firmly, and waits until nothing of it is left. */
  async close(patienceSeconds = 5): Promise<Exit> {
    const order: HookOrder = { t: 'end' };
    if (this.exit === null && this.#hook !== null && this.#mode !== 'apply') {
      this.#hook.broadcast(order);
      const gone = await Promise.race([this.#ended.then(() => true), delay(patienceSeconds * 1000).then(() => false)]);
      if (gone) return this.#ended;
    }
    if (this.exit === null) this.run.end('cancel');
    return this.#ended;
  }

  async #until(condition: () => boolean): Promise<void> {
    while (this.exit === null && !condition()) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  #hear(event: HookEvent): void {
    if ('message' in event) {
      const { message } = event;
      if (message.t === 'hello') this.hello = message;
      else if (message.t === 'loop') {
        this.loop ??= message;
        for (const code of message.warnings) this.#warned(code);
        this.loopsSince ??= Date.now();
        this.#looping.add(event.rank);
      } else if (message.t === 'measured') this.#measured.set(event.rank, message);
      else if (message.t === 'exception') this.exception ??= message;
      else if (message.t === 'cut') {
        this.cut ??= { cut: message.cut, why: message.why };
        this.#hooks.onCut?.(this.cut);
      } else if (message.t === 'bye') this.bye ??= message;
      else if (message.t === 'step') {
        this.steps = Math.max(this.steps, message.n);
        this.#hooks.onStep?.(message);
      } else if (message.t !== 'warn') this.#hooks.onRemark?.(message.t, message.message);
      else {
        const code = message.code ?? '';
        this.#warned(code);
        // Each is said once: a job may send the same again and again.
        if (this.#said.has(code) || this.#said.size >= MOST_WARNINGS) return;
        this.#said.add(code);
        this.#hooks.onRemark?.('warn', message.message);
      }
    }
    this.#wake();
  }

  #warned(code: string): void {
    if (this.warnings.size < MOST_WARNINGS) this.warnings.add(code);
  }
}

const delay = (ms: number): Promise<void> =>
  new Promise((resolve) => {
    setTimeout(resolve, ms).unref();
  });
