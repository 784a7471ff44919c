import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { OomtuneError } from '../../common/errors.js';
import { type FollowedTrace, trace } from '../../contract/estimate.js';
import type { Probe } from '../../contract/measurement.js';
import { type Rung, rungOf } from '../../contract/rung.js';
import { doubtOf } from '../../tuner/index.js';
import { launchSearch } from '../launch/launch.js';
import type { Session } from '../launch/session.js';
import { diagnoseSession } from '../search/observe.js';
import { endedUntrained, undriveable } from '../search/undriveable.js';
import type { Measurement } from '../search/worst-rank.js';
import type { Target } from '../target.js';
import type { WorkDeps, WorkRequest } from '../types.js';

/** For a command that names no batch of its own. */
const USUAL = 8;

/** A command's steps at some sizes. */
export interface Followings {
  /** The script's own batch; null: it names none. */
  own: { micro_batch: number; accumulation: number } | null;
  traces: FollowedTrace[];
  measured: Measurement | null;
  rung: Rung;
  torch: string | null;
}

/** The launches in which a command's steps are followed. */
export class Following {
  readonly #rung: Rung;
  #measured: Measurement | null = null;

  constructor(
    private readonly request: WorkRequest,
    private readonly deps: WorkDeps,
    private readonly target: Target,
  ) {
    const { amp, checkpointing } = request.options;
    this.#rung = rungOf({
      amp: amp === 'auto' ? target.baseRung.amp : amp,
      checkpointing: checkpointing === 'auto' ? target.baseRung.checkpointing : checkpointing === 'on',
    });
  }

  async run(): Promise<Followings> {
    const { target } = this;
    const carrier = target.carrier('micro_batch');
    if (carrier === 'hook') return this.#inOne(await this.#open('probe', null));
    // With a known flag at the command's own number the hook can set the loader's sizes, too.
    const own = target.own.microBatch;
    return carrier === 'preset' && target.hook && own !== null
      ? this.#inOne(await this.#open('probe', own))
      : this.#oneEach();
  }

  /** The hook sets the sizes: one process follows all of them. */
  async #inOne(session: Session): Promise<Followings> {
    const traces: FollowedTrace[] = [];
    try {
      const loop = await session.ready();
      if (loop === null) throw await this.#failure(session);
      const own = loop.own_batch;
      const sizes = sizesAround(own ?? USUAL);
      // The first steps of all also make what is made once; the same size again shows what each size makes.
      for (const [at, size] of [sizes[0] as number, ...sizes].entries()) {
        const measured = await this.#measure(session, size, false);
        if (measured === null) throw await this.#failure(session);
        if (at > 0 || measured.short) traces.push(readTrace(session.run.dir, size));
        if (measured.short) break;
      }
      const accumulation = this.#measured?.own_accumulation ?? 1;
      return {
        own: own === null ? null : { micro_batch: own, accumulation },
        traces,
        measured: this.#measured,
        rung: this.#rung,
        torch: session.hello?.torch ?? this.target.torch,
      };
    } finally {
      await session.close();
    }
  }

  /** The command carries the size: a process follows one. */
  async #oneEach(): Promise<Followings> {
    const traces: FollowedTrace[] = [];
    let torch = this.target.torch;
    const own = this.target.own.microBatch;
    for (const size of sizesAround(own ?? USUAL)) {
      const session = await this.#open('measure', size);
      try {
        const measured = await this.#measure(session, size, true);
        if (measured === null) throw await this.#failure(session);
        traces.push(readTrace(session.run.dir, size));
        torch = session.hello?.torch ?? torch;
      } finally {
        await session.close();
      }
    }
    return {
      own: own === null ? null : { micro_batch: own, accumulation: this.target.own.accumulation ?? 1 },
      traces,
      measured: this.#measured,
      rung: this.#rung,
      torch,
    };
  }

  /** Null: the process ended. */
  async #measure(session: Session, size: number, carried: boolean): Promise<Measurement | null> {
    const probe = this.#probe(size);
    const measured = await session.ask({ ...probe, rung: this.target.hookRung(probe.rung) }, carried);
    this.#measured = measured ?? this.#measured;
    return measured;
  }

  /** `size`: what the command is to carry; null: nothing. */
  async #open(mode: 'probe' | 'measure', size: number | null): Promise<Session> {
    const { request, deps, target } = this;
    const session = await launchSearch(
      { request, deps, target, launches: request.launches },
      {
        hook: { mode, steps: request.options.steps, estimate: true },
        rung: this.#rung,
        expandable: false,
        probe: size === null ? null : this.#probe(size),
      },
    );
    if (deps.signal.aborted) session.run.end('cancel');
    else deps.signal.addEventListener('abort', () => session.run.end('cancel'), { once: true });
    return session;
  }

  #probe(size: number): Probe {
    return {
      rung: this.#rung,
      micro_batch: size,
      accumulation: 1,
      steps: this.request.options.steps,
      rest_steps: 0,
      ...doubtOf(Number.MAX_SAFE_INTEGER, { steady: true, proves: false }),
      fresh: false,
      purpose: 'own',
      why: 'to follow what its steps allocate',
    };
  }

  /** What ended the process. */
  async #failure(session: Session): Promise<OomtuneError> {
    const { deps, target } = this;
    const { goodbye } = session;
    const leaves = goodbye !== null && session.exception === null;
    if (leaves) session.run.end('cancel');
    const exit = await session.ended();
    deps.signal.throwIfAborted();
    const said = session.exception?.message ?? session.goodbye?.message ?? '';
    if (/oomtune estimate/.test(said) || NEEDS_CARD.test(said)) {
      return new OomtuneError(
        'OOMTUNE_NOT_ESTIMATED',
        `The script's steps cannot be followed without a GPU: ${said.split('\n')[0]}`,
        'On a machine with a GPU `oomtune find-batch` measures what is only estimated here.',
      );
    }
    const diagnosis = leaves
      ? undriveable(goodbye, this.request.options.steps)
      : await diagnoseSession(session, exit, target.kind, await target.memory.surroundings());
    const verdict = diagnosis.class === 'ok' ? endedUntrained(session) : diagnosis;
    return new OomtuneError(
      'OOMTUNE_JOB_FAILED',
      `The script did not come to the end of its steps: ${verdict.evidence ?? verdict.cause}`,
      verdict.advice ?? 'Run the command alone and mend what it says.',
    );
  }
}

/** Errors of a script that meets the missing card after all. */
const NEEDS_CARD =
  /CUDA error|CUDA driver|NVIDIA driver|not compiled with CUDA|no NVIDIA|meta tensor|device meta|on meta\b|Triton/i;

/** The own batch between a smaller and a larger one: three show what bends. Not 1, which broadcasts where others do not. */
function sizesAround(own: number): number[] {
  if (own <= 2) return [2, 3, 4];
  return [Math.ceil(own / 2), own, 2 * own];
}

const readTrace = (folder: string, microBatch: number): FollowedTrace =>
  trace.parse(JSON.parse(readFileSync(join(folder, `${microBatch}.json`), 'utf8')));
