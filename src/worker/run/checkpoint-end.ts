import { graceSeconds } from '../../common/bounds.js';
import type { Checkpoint } from '../../contract/hook.js';
import type { Config } from '../../contract/rung.js';
import type { Session } from '../launch/session.js';
import type { Target } from '../target.js';
import type { WorkDeps } from '../types.js';

/** The hook's reason for leaving a script at its checkpoint. */
const REASON = 'checkpoint';

/** A launch that needs less memory. */
export interface Less {
  config: Config;
  /** What it goes on with. */
  how: string;
}

/** Why a launch ended at its checkpoint, and what follows. */
export interface Ended extends Less {
  /** Optimizer steps of the launch. */
  step: number;
}

/**
 * Ends a launch at the script's own next checkpoint where it may run out of memory. Only where somebody has seen to it that the next launch
 * resumes, as the job might have lasted to its end; and only a job of one process: of several, others may be at their part of the checkpoint still.
 */
export class CheckpointEnd {
  #asked: Less | null = null;
  #ended: Ended | null = null;
  #timer: NodeJS.Timeout | null = null;

  constructor(
    private readonly deps: WorkDeps,
    private readonly target: Target,
    private readonly madeToResume: boolean,
  ) {}

  /** Once it is asked, or cannot be. Null: it cannot, or it was already. */
  ask(session: Session, less: Less | null): string | null {
    if (this.#asked !== null || less === null || !this.madeToResume) return null;
    if (!session.isAlone || session.spared || this.target.hidesProgram) return null;
    this.#asked = less;
    session.order(REASON);
    return `It is ended at its own next checkpoint and goes on from there with ${less.how}.`;
  }

  /** The job waits at a checkpoint. */
  decide(session: Session, { n }: Checkpoint): void {
    const less = this.#asked;
    if (less === null || this.deps.signal.aborted) {
      session.order('go');
      return;
    }
    this.#ended = { ...less, step: n };
    session.order('end');
    // Others of its tree, such as a launcher that starts it again
    this.#timer = setTimeout(() => session.run.end('cancel'), graceSeconds() * 1000);
  }

  /** Of a launch that is over; null: it ended otherwise. */
  after(session: Session): Ended | null {
    if (this.#timer !== null) clearTimeout(this.#timer);
    return session.goodbye?.reason === REASON ? this.#ended : null;
  }
}
