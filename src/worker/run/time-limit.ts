import { OomtuneError } from '../../common/errors.js';
import { formatSpan } from '../../common/span.js';
import type { WorkDeps, WorkRequest } from '../types.js';

/** The longest delay of setTimeout. */
const LONGEST_MS = 2 ** 31 - 1;
/** A run that ended unobserved has this long to be reported as it ended. */
const ADOPTED_MS = 10_000;

/** The job's time is up, and it has been told to end. */
export class TimeUp extends OomtuneError {
  constructor(seconds: number) {
    super(
      'OOMTUNE_TIME_LIMIT',
      `The job reached its time limit of ${formatSpan(seconds)}.`,
      'Give it more by --time, or let it write checkpoints and resume.',
    );
  }
}

export const isTimeUp = (signal: AbortSignal): boolean => signal.aborted && signal.reason instanceof TimeUp;

/** The job's `--time`, from its first launch on, searches and relaunches included; its supervisor ends a run as well. */
export class TimeLimit {
  readonly #abort = new AbortController();
  /** In ms of the monotonic clock, as the other one may be set; null: nothing was launched yet. */
  #until: number | null;
  #timer: NodeJS.Timeout | null = null;
  #unlisten: () => void = () => {};

  private constructor(
    private readonly seconds: number,
    startedAt: string | null,
  ) {
    // What began in another process has its time by the clock that both have.
    const ago = startedAt === null ? null : Date.now() - Date.parse(startedAt);
    this.#until = ago === null ? null : performance.now() - ago + seconds * 1000;
  }

  /** Null: no limit. */
  static of({ options, startedAt }: WorkRequest): TimeLimit | null {
    return options.timeSeconds == null ? null : new TimeLimit(options.timeSeconds, startedAt ?? null);
  }

  /** `deps` for work that is aborted when the time is up. */
  watch(deps: WorkDeps): WorkDeps {
    if (this.#until !== null) this.#arm(ADOPTED_MS);
    // Combines both signals, and lives as long as the job's own
    const { signal } = deps;
    const stop = () => this.#abort.abort(signal.reason);
    if (signal.aborted) stop();
    else signal.addEventListener('abort', stop, { once: true });
    this.#unlisten = () => signal.removeEventListener('abort', stop);
    return {
      ...deps,
      secondsLeft: () => this.left,
      signal: this.#abort.signal,
      persist: async (patch) => {
        await deps.persist(patch);
        if (patch.launches !== undefined && patch.launches.length > 0) this.#begin();
      },
    };
  }

  /** Seconds that are left for a new launch. */
  private get left(): number {
    return this.#until === null ? this.seconds : Math.max(0.001, (this.#until - performance.now()) / 1000);
  }

  stop(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#unlisten();
  }

  #begin(): void {
    if (this.#until !== null) return;
    this.#until = performance.now() + this.seconds * 1000;
    this.#arm();
  }

  #arm(least = 0): void {
    const ms = Math.max(least, (this.#until as number) - performance.now());
    if (ms <= 0) this.#abort.abort(new TimeUp(this.seconds));
    else this.#timer = setTimeout(() => this.#arm(), Math.min(ms, LONGEST_MS));
  }
}
