import { OomtuneError } from '../../common/errors.js';
import { Interrupted } from '../../common/interrupted.js';
import { aborted } from '../../common/within.js';
import type { Diagnosis } from '../../contract/diagnosis.js';
import type { Exit } from '../../contract/launch.js';
import type { Config, Cut } from '../../contract/rung.js';
import type { Run } from '../../runtime/types.js';
import { Detached, isEnded, letsGo } from '../launch/detached.js';
import { namingLimit } from '../launch/ended-late.js';
import type { SessionHooks } from '../launch/hook-report.js';
import { launchJob, remarksTo } from '../launch/launch.js';
import { Session } from '../launch/session.js';
import { STILL_RUNNING_ADVICE } from '../launch/still-running.js';
import { withCutCalls } from '../search/exhausted.js';
import { diagnoseSession } from '../search/observe.js';
import type { Target } from '../target.js';
import type { Lease, WorkDeps, WorkRequest } from '../types.js';
import { CheckpointEnd, type Ended, type Less } from './checkpoint-end.js';
import type { FirstRun } from './first-run.js';
import { Pieces } from './fragmentation.js';
import { Growth } from './growth.js';
import type { JobProgress } from './job-progress.js';
import type { LastWrites } from './last-writes.js';
import { isMadeToResume } from './resumption.js';
import { scriptTextIn } from './script-text.js';
import { isTimeUp } from './time-limit.js';

/** One launch of the job, when it has ended. */
export interface Attempt {
  session: Session;
  exit: Exit;
  /** Null: it ended well. */
  diagnosis: Diagnosis | null;
  /** It was ended at its own checkpoint, ahead of running out of memory; null: it was not. */
  ended: Ended | null;
}

interface Wish {
  /** Null: as it stands. */
  config: Config | null;
  /** A run of an earlier process, to take over; null: it is launched. */
  adopted: Run | null;
  /** The run that shows what it takes; null: that is known, or nothing is to be recorded. */
  first: FirstRun | null;
  /** What needs less memory than this configuration; null: nothing, or it may not be launched again. */
  less: (config: Config) => Less | null;
  /** Why it is launched once more; null: it is the first. */
  why: string | null;
}

/** Launches the job, and follows each launch to its end. */
export class Attempts {
  /** Null: no hook has said that it cuts. */
  cut: Cut | null = null;
  /** A launch with stuck processes; null: none. */
  left: { run: Run; exit: Exit } | null = null;

  constructor(
    private readonly request: WorkRequest,
    private readonly deps: WorkDeps,
    private readonly launches: WorkRequest['launches'],
    private readonly jobProgress: JobProgress,
    private readonly lastWrites: LastWrites,
  ) {}

  /** One launch, or an adopted one, until its whole tree is gone. */
  async make(target: Target, lease: Lease, { config, adopted, first, less, why }: Wish): Promise<Attempt> {
    const { signal } = this.deps;
    const { jobProgress, launches } = this;
    if (adopted === null && config !== null) this.#tellsOfCut(target, config);
    const growth = new Growth();
    const expandable = config?.expandable_segments === true || target.expandableSegments === 'on';
    const pieces = new Pieces(target.budgetBytes, expandable);
    const checkpoint = new CheckpointEnd(this.deps, target, await isMadeToResume(this.request, target));
    let inPieces = false;
    const owner = { request: this.request, deps: this.deps, target, launches };
    const hooks: SessionHooks = {
      ...remarksTo(this.deps),
      onCut: (cut) => {
        this.cut = cut;
        void this.deps.persist({ cut }).catch((err: unknown) => this.deps.log.warn({ err }, 'the cut is not recorded'));
      },
      onStep: (step, rank) => {
        growth.add(step);
        const told = pieces.add(step, rank);
        inPieces ||= told !== null;
        const now = config ?? first?.config ?? null;
        const ends = inPieces && now !== null && session !== null ? checkpoint.ask(session, less(now)) : null;
        if (told !== null || ends !== null) this.#note(`${told ?? ''} ${ends ?? ''}`);
        this.deps.progress({ type: 'step', step: step.n });
        jobProgress.note(launches.at(-1)?.dir as string);
        if (session !== null) first?.stepped(session, step.n);
      },
      onCheckpoint: (message) => session && checkpoint.decide(session, message),
      onMeasured: (measurement) => session && first?.measured(session, measurement),
    };
    let session: Session | null = null;
    session =
      adopted === null
        ? await launchJob(owner, { config, resume: jobProgress.made, watched: first !== null, hooks, why })
        : await Session.adopt(adopted, this.deps.log, hooks);
    // In an outage of Redis the job is looked after all the same.
    await Promise.race([lease.attach(session.run), session.ended(), aborted(signal)]);
    const last = launches.at(-1);
    const { logFile } = session.run;
    this.deps.progress({ type: 'running', config, launch: last?.launch ?? 1, logFile, watched: first !== null });
    await this.deps.persist({
      state: 'running',
      reason: null,
      config,
      key: target.key,
      devices: target.devices.map((device) => device.id),
    });
    const unlisten = this.deps.onSignal?.((name) => session.run.signal(name));
    let exit = await this.#waitForEnd(session, signal).finally(unlisten);
    const ended = checkpoint.after(session);
    const failed = ended === null && (exit.code !== 0 || exit.ended_by !== 'job');
    if (first !== null) {
      const recorded = failed || ended !== null ? first.settled() : first.succeeded(session, exit);
      await this.lastWrites.wait(recorded, UNRECORDED);
    }
    const found = failed
      ? await diagnoseSession(session, exit, target.kind, {
          growth: growth.perStep(),
          keptBy: growth.keptBy,
          textOf: scriptTextIn(this.request.options.cwd),
          ...(await target.memory.surroundings()),
        })
      : null;
    const limited = found && namingLimit(found, exit, 'run', this.request.options);
    const diagnosis = limited && withCutCalls(limited, session.exception?.cut_calls ?? null);
    if (diagnosis?.reason === 'worker' && this.#keepsLoader(target, session)) diagnosis.cure = 'none';
    // Only a search has a use for what waits.
    if (session.spared && (first === null || signal.aborted || diagnosis?.class !== 'device_oom'))
      exit = await session.close();
    if (exit.stuck === undefined) return { session, exit, diagnosis, ended };
    this.left = { run: session.run, exit };
    const verdict = diagnosis && { ...diagnosis, evidence: exit.error, line: null, advice: STILL_RUNNING_ADVICE };
    return { session, exit, diagnosis: verdict, ended: null };
  }

  /** Whether the workers of the loader make the same batches at any size: they are cut when the model is called. */
  #keepsLoader(target: Target, { cut }: Session): boolean {
    const place = cut?.cut ?? (this.request.options.cut === 'loader' ? 'loader' : 'model');
    return target.carrier('micro_batch') === 'hook' && place === 'model';
  }

  /**
   * Notes what a cut changes. Throws OOMTUNE_NO_KNOB if nothing accumulates the micro-batches, which would be another training.
   * If another batch was asked for it only notes that: the program may read the accumulation unseen.
   */
  #tellsOfCut(target: Target, { micro_batch: micro, accumulation }: Config): void {
    const own = target.own.accumulation ?? 1;
    const { preset } = target.plan.inner;
    if (accumulation > own && preset?.differs && target.carrier('accumulation') === 'preset')
      this.#note(preset.differs);
    const parts = accumulation / target.loopAccumulation;
    if (parts <= 1 || target.accumulates) return;
    const what = `in the command makes one optimizer step of ${parts} micro-batches of ${micro}`;
    if (target.carrier('micro_batch') === 'preset') {
      throw new OomtuneError(
        'OOMTUNE_NO_KNOB',
        `The whole batch does not fit, and nothing ${what}.`,
        `Give the script a flag and put {accumulation} there, or train on other batches with --effective-batch ${micro * target.loopAccumulation * target.worldSize}.`,
      );
    }
    this.#note(
      `Nothing ${what}: unless the program reads OOMTUNE_ACCUMULATION it trains on batches of ${micro}. Put {accumulation} where it takes it.`,
    );
  }

  /** Waits for the end. An abort ends the job, unless it only lets go. */
  async #waitForEnd(session: Session, signal: AbortSignal): Promise<Exit> {
    const fallen = session.unnoticed.then(() => 'fallen' as const);
    const first = await Promise.race([session.ended(), fallen, aborted(signal)]);
    if (first === 'fallen') return this.#endOthers(session);
    if (first !== undefined) return first;
    if (letsGo(signal)) {
      session.letGo();
      throw new Detached();
    }
    const exit = signal.reason instanceof Interrupted ? await this.#interrupt(session, signal.reason) : undefined;
    if (exit !== undefined) return exit;
    session.run.end(isTimeUp(signal) ? 'timeout' : 'cancel');
    return session.ended();
  }

  /** Undefined: it goes on. */
  async #interrupt(session: Session, { over }: Interrupted): Promise<Exit | undefined> {
    session.run.signal('SIGINT');
    const said = setTimeout(
      () => this.#note('The job was interrupted and may save what it has. Ctrl-C ends it.'),
      SOON_MS,
    );
    try {
      return (await Promise.race([session.ended(), aborted(over)])) ?? undefined;
    } finally {
      clearTimeout(said);
    }
  }

  /** Ranks that wait for one that died would do so until their libraries' time is up. The end is that of the one that died. */
  async #endOthers(session: Session): Promise<Exit> {
    this.#note('A rank ran out of memory and the others go on waiting for it: they are ended.');
    session.run.end('cancel');
    const exit = await session.ended();
    return isEnded(this.deps.signal) ? exit : { ...exit, code: FAILED, signal: null, ended_by: 'job' };
  }

  #note(text: string): void {
    this.deps.progress({ type: 'note', text: text.trim() });
  }
}

const UNRECORDED = 'what it takes is not recorded, and the next run measures it again';
/** The exit code of a program that gives up. */
const FAILED = 1;
/** A job that ends within this time needs no word. */
const SOON_MS = 1000;
