import type { Log } from '../../common/log.js';
import type {
  Checkpoint,
  Goodbye,
  Hello,
  HookException,
  HookMessage,
  Loop,
  Measured,
  Rehearsed,
  Step,
  XlaPool,
} from '../../contract/hook.js';
import type { Cut } from '../../contract/rung.js';
import { type Measurement, worstRank } from '../search/worst-rank.js';
import { FallenRank } from './fallen-rank.js';

/** Who wants to know at once. */
export interface SessionHooks {
  onHello?: (hello: Hello) => void;
  onStep?: (step: Step, rank: number) => void;
  onCut?: (cut: Cut) => void;
  /** All ranks of a watched job have measured so many steps. */
  onMeasured?: (measurement: Measurement) => void;
  /** A rank tells of a rehearsal. */
  onRehearsed?: (message: Rehearsed) => void;
  /** The job waits at a checkpoint. */
  onCheckpoint?: (message: Checkpoint) => void;
  onRemark?: (kind: 'eval' | 'save' | 'warn', message: string) => void;
}

/** Bounds the codes of warnings; the hook has far fewer. */
const MOST_WARNINGS = 64;

/** What the hooks of one training process, of all its ranks, have told so far. */
export class HookReport {
  /** The first that a rank reported, which has the cause. */
  exception: HookException | null = null;
  hello: Hello | null = null;
  loop: Loop | null = null;
  /** Why the hook takes no part; null: it does, or has not said. */
  goodbye: Goodbye | null = null;
  /** Of the process whose pool was filled most; null: no JAX, or it told nothing. */
  xlaPool: XlaPool | null = null;
  /** When the training loop began, in milliseconds since the epoch; null: not yet. */
  loopsSince: number | null = null;
  steps = 0;
  /** By rank, what each last said of a rehearsal. */
  readonly rehearsed = new Map<number, Rehearsed>();
  /** Null: the hook has not said that it cuts. */
  cut: Cut | null = null;
  /** Codes of the hook's warnings: `dataset_on_device`, `eval_builds_graph`, … */
  readonly warnings = new Set<string>();
  /** Processes with a connection. */
  protected readonly speaking = new Set<number>();
  protected readonly fallen = new FallenRank();
  readonly #measured = new Map<number, Measured>();
  readonly #looping = new Set<number>();
  readonly #said = new Set<string>();

  constructor(private readonly listener: { readonly hooks: SessionHooks; readonly log: Log | null }) {}

  /** Resolves if a rank has died for want of memory and the others wait for it all the same. */
  get unnoticed(): Promise<void> {
    return this.fallen.unnoticed;
  }

  get #world(): number {
    return this.hello?.world_size ?? 1;
  }

  /** One process of one rank trains. */
  get isAlone(): boolean {
    return this.#world === 1 && this.speaking.size === 1;
  }

  /** Every rank is in its training loop. */
  protected get loops(): boolean {
    return this.#looping.size >= this.#world;
  }

  /** Every rank has measured. */
  protected get hasMeasured(): boolean {
    return this.#measured.size >= this.#world;
  }

  /** None is to come any more. */
  protected get isOver(): boolean {
    return this.goodbye !== null || this.exception !== null;
  }

  /** The measurement of all ranks, once. */
  protected takeMeasurement(): Measurement {
    const worst = worstRank([...this.#measured.values()]);
    this.#measured.clear();
    return worst;
  }

  protected forgetMeasurements(): void {
    this.#measured.clear();
  }

  protected closed(pid: number): void {
    this.speaking.delete(pid);
    if (this.#world > 1) this.fallen.gone(pid, this.speaking.size);
  }

  protected told(message: HookMessage, rank: number, pid: number): void {
    const { hooks, log } = this.listener;
    if (message.t === 'hello') {
      this.hello = message;
      this.fallen.stop();
      this.speaking.add(message.pid);
      hooks.onHello?.(message);
    } else if (message.t === 'plain') log?.debug({ why: message.message }, 'each process of this search is a start');
    else if (message.t === 'loop') {
      this.loop ??= message;
      for (const code of message.warnings) this.#warned(code);
      this.loopsSince ??= Date.now();
      this.#looping.add(rank);
    } else if (message.t === 'measured') {
      this.#measured.set(rank, message);
      if (this.hasMeasured) hooks.onMeasured?.(worstRank([...this.#measured.values()]));
    } else if (message.t === 'exception') {
      this.exception ??= message;
      if (message.oom) this.fallen.ranOut(pid);
    } else if (message.t === 'cut') {
      this.cut ??= { cut: message.cut, why: message.why };
      hooks.onCut?.(this.cut);
    } else if (message.t === 'xla_pool') {
      if (message.peak_bytes > (this.xlaPool?.peak_bytes ?? 0)) this.xlaPool = message;
    } else if (message.t === 'rehearsed') {
      this.rehearsed.set(rank, message);
      hooks.onRehearsed?.(message);
    } else if (message.t === 'checkpoint') hooks.onCheckpoint?.(message);
    else if (message.t === 'goodbye') this.goodbye ??= message;
    else if (message.t === 'step') {
      this.steps = Math.max(this.steps, message.n);
      this.fallen.stop();
      hooks.onStep?.(message, rank);
    } else if (message.t === 'eval' || message.t === 'save') hooks.onRemark?.(message.t, message.message);
    else if (message.t === 'warn') {
      const code = message.code ?? '';
      this.#warned(code);
      // Reported once each: a job may send the same again and again.
      if (this.#said.has(code) || this.#said.size >= MOST_WARNINGS) return;
      this.#said.add(code);
      hooks.onRemark?.('warn', message.message);
    }
  }

  #warned(code: string): void {
    if (this.warnings.size < MOST_WARNINGS) this.warnings.add(code);
  }
}
