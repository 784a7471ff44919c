import { isHost } from '../../contract/device-id.js';
import type { Diagnosis } from '../../contract/diagnosis.js';
import type { Rehearsal } from '../../contract/rehearsal.js';
import type { RunReport } from '../../contract/reports.js';
import { type Config, shown } from '../../contract/rung.js';
import { lastLine, lastLines } from '../last-lines.js';
import { isEnded } from '../launch/detached.js';
import type { Session } from '../launch/session.js';
import { STILL_RUNNING_ADVICE } from '../launch/still-running.js';
import { exhaustedDiagnosis } from '../search/exhausted.js';
import { round } from '../search/report.js';
import type { SearchOutcome } from '../search/search.js';
import { gotOver, unheardRefusal } from '../search/unheard.js';
import type { Target } from '../target.js';
import type { WorkDeps, WorkRequest } from '../types.js';
import type { Attempt, Attempts } from './attempts.js';
import { diedAt, emptyReport, reportOf, unseenMemory } from './run-report.js';
import { isTimeUp } from './time-limit.js';

/** What is reported of a job at its end. */
export class JobReports {
  /** What a rehearsal of the job has shown; null: there was none. */
  rehearsal: Rehearsal | null = null;
  readonly #started = Date.now();

  constructor(
    private readonly request: WorkRequest,
    private readonly deps: WorkDeps,
    private readonly launches: WorkRequest['launches'],
    private readonly attempts: Attempts,
  ) {}

  /**
   * Of a job that is not started again. `withheld`: why it is not, although that would have helped; null: not so. `trainedBefore`: its
   * command was seen to train when it was searched.
   */
  ended(
    target: Target,
    { session, exit, diagnosis }: Attempt,
    config: Config | null,
    withheld: string | null,
    trainedBefore: boolean,
  ): RunReport {
    const failure =
      diagnosis === null || withheld === null ? diagnosis : { ...diagnosis, advice: `${withheld} ${diagnosis.advice}` };
    const unseen = isHost(target.kind) ? unseenMemory(exit, target.memory.limitBytes) : null;
    if (unseen !== null) this.#note(unseen);
    const refused = unheardRefusal(exit, target.kind, session.logFile);
    const wentOn = exit.code === 0 && target.hidesProgram && session.exception?.oom === true;
    if (wentOn) this.#note(WENT_ON);
    else if (refused !== null) this.#note(session.steps > 0 ? gotOver(refused) : refused);
    if (exit.code === 0 && trainedBefore && session.loop === null && session.steps === 0)
      this.#note(notStartedOver(session));
    if (exit.stuck !== undefined) this.#note(`${exit.error} ${STILL_RUNNING_ADVICE}`);
    const report = reportOf(
      this.#frame(target, config),
      exit,
      failure,
      isEnded(this.deps.signal) && !isTimeUp(this.deps.signal),
    );
    const at = failure === null ? null : diedAt(session, failure);
    return at === null ? report : { ...report, died_at: at };
  }

  /** The report after a search without an answer: the job ended as its last launch did. */
  async withoutRun(target: Target, outcome: SearchOutcome): Promise<RunReport> {
    const { action, diagnosis, refused } = outcome;
    const exhausted = action.type === 'exhausted';
    const last = this.launches.at(-1);
    const run = exhausted || refused || last === undefined ? null : await this.deps.runtime.adopt(last.dir);
    const exit = (await run?.wait()) ?? null;
    // Launches of a search do not write to the terminal, so their last lines are shown here.
    if (run !== null && this.request.foreground) {
      const lines = lastLines(run.logFile, 0, diagnosis?.evidence ?? '');
      if (lines.length > 0) this.deps.progress({ type: 'said', lines });
    }
    // A launch that had given its reason may have been ended by us before it was gone: that signal is not its own.
    const ended = exit?.ended_by === 'cancel' && !isEnded(this.deps.signal);
    return {
      ...this.#frame(target, null),
      exit_code: ended || refused ? FAILED : (exit?.code ?? null),
      signal: ended ? null : (exit?.signal ?? null),
      outcome: exhausted ? 'exhausted' : exit?.ended_by === 'timeout' ? 'timeout' : 'failed',
      failure: exhausted ? exhaustedDiagnosis(diagnosis, action, this.request.options, outcome) : diagnosis,
    };
  }

  /** Of a job that is not run, as a rehearsal has shown that it would run out of memory. */
  unfit(target: Target, failure: Diagnosis): RunReport {
    return { ...this.#frame(target, null), outcome: 'exhausted', failure };
  }

  #frame(target: Target, config: Config | null): RunReport {
    const { jobId, options } = this.request;
    const frame = emptyReport(jobId, {
      config: config && shown(config),
      cut: this.attempts.cut,
      key: options.tune ? target.key : null,
      launches: this.launches.length,
      wall_s: round((Date.now() - this.#started) / 1000, 2),
    });
    return this.rehearsal === null ? frame : { ...frame, rehearsal: this.rehearsal };
  }

  #note(text: string): void {
    this.deps.progress({ type: 'note', text: text.trim() });
  }
}

/** A note for a job that ended well without having trained, after an earlier start of its command. */
const notStartedOver = ({ logFile, logFrom }: Session): string =>
  `The job ended well, but no training was seen in it${lastLine(logFile, logFrom)}. Its command was started before, to see what fits: it may not start over where what that made is still there.`;

/** The exit code of a program that gives up. */
const FAILED = 1;
const WENT_ON =
  'A program that the script started ran out of memory, and the script went on: its training is missing. With `set -e` the script ends there, and oomtune makes it fit.';
