import { OomtuneError } from '../../common/errors.js';
import { aborted } from '../../common/within.js';
import { isHost } from '../../contract/device-id.js';
import type { Exit } from '../../contract/launch.js';
import type { Observation } from '../../contract/measurement.js';
import type { Recommendation } from '../../contract/recommendation.js';
import type { RunReport } from '../../contract/reports.js';
import { type Config, type Cut, shown } from '../../contract/rung.js';
import type { Run } from '../../runtime/types.js';
import { withRecordedKnobs } from '../knob/recorded-knobs.js';
import { Detached, isEnded, letsGo } from '../launch/detached.js';
import { launchJob, remarksTo } from '../launch/launch.js';
import { Session, type SessionHooks } from '../launch/session.js';
import { giveBack, STILL_RUNNING_ADVICE, StillRunning } from '../launch/still-running.js';
import { prepare } from '../prepare.js';
import { exhaustedDiagnosis, outgrown } from '../search/exhausted.js';
import { diagnoseSession } from '../search/observe.js';
import { recommendationOf, round } from '../search/report.js';
import { Search, type SearchOutcome } from '../search/search.js';
import { unheardRefusal } from '../search/unheard.js';
import type { Target } from '../target.js';
import type { Lease, WorkDeps, WorkRequest } from '../types.js';
import { FirstRun, startsAsItStands } from './first-run.js';
import { Pieces } from './fragmentation.js';
import { Growth } from './growth.js';
import { type Attempt, type Relaunch, Relaunches } from './relaunches.js';
import { progressSince } from './resumption.js';
import {
  type Choice,
  configFrom,
  fitsAsItStands,
  noBatchOfItsOwn,
  type OwnBatch,
  ownBatchOf,
  ownOf,
  withCommand,
} from './reuse.js';
import { emptyReport, lastLines, reportOf, unseenMemory } from './run-report.js';
import { isTimeUp, TimeLimit } from './time-limit.js';
import { verify } from './verification.js';

/**
 * Runs a command to its end: at the recorded configuration, else as it stands, and only where that runs out of memory, or other
 * than as it stands was asked for, after a search. A late out-of-memory error steps down and runs again. Takes over the run of an earlier process. Throws Detached when told to let go, and
 * TimeUp where its time is up before its run.
 */
export async function runJob(asked: WorkRequest, deps: WorkDeps): Promise<RunReport> {
  const request = await withRecordedKnobs(asked, deps);
  const limit = TimeLimit.of(request);
  if (limit === null) return new JobRun(request, deps).complete();
  return new JobRun(request, limit.watch(deps)).complete().finally(() => limit.stop());
}

class JobRun {
  readonly #started = Date.now();
  readonly #launches: WorkRequest['launches'];
  readonly #relaunches: Relaunches;
  #growth = new Growth();
  #cut: Cut | null = null;
  /** The run that shows what it takes; null: that is known, or nothing is to be recorded. */
  #first: FirstRun | null = null;
  /** A launch with stuck processes; null: none. */
  #left: { run: Run; exit: Exit } | null = null;

  constructor(
    private readonly request: WorkRequest,
    private readonly deps: WorkDeps,
  ) {
    this.#launches = [...request.launches];
    this.#relaunches = new Relaunches(request, deps);
  }

  async complete(): Promise<RunReport> {
    const target = await prepare(this.request, this.deps);
    const lease = await target.memory.acquire();
    let keep = false;
    try {
      const begun = this.#launches.findLast((launch) => launch.purpose === 'run');
      let choice: Choice | null = begun?.config ? { config: begun.config, notes: [] } : null;
      if (!begun && this.request.options.tune) {
        const chosen = await this.#choose(target, lease);
        if (chosen !== null && 'outcome' in chosen) return chosen;
        choice = chosen;
      } else if (begun && choice === null && !this.#searchedBefore(begun.launch)) this.#watch(target, lease);
      if (choice !== null) await target.memory.pack(lease);
      return await this.#run(target, lease, choice?.config ?? null);
    } catch (error) {
      keep = error instanceof Detached;
      if (error instanceof StillRunning) this.#left = error;
      throw error;
    } finally {
      if (!keep) await giveBack(lease, this.#left);
    }
  }

  /** The recorded configuration, else one found by a search. Null: it runs as it stands. A report: nothing is to be run. */
  async #choose(target: Target, lease: Lease): Promise<Choice | RunReport | null> {
    for (const text of target.notes) this.#note(text);
    const { options } = this.request;
    const { recommendations } = await this.deps.records();
    const recorded = await recommendations.get(target.key);
    if (recorded?.command_digest === target.digest) target.trustHook();
    const own = recorded === null ? null : ownBatchOf(recorded, target);
    const known = recorded === null || own === null ? null : configFrom(recorded, target.needs(own), options);
    if (recorded !== null && own !== null && known !== null) return this.#reused(target, recorded, own, known);
    if (target.carrier('micro_batch') === 'none') {
      this.#note('Nothing in the command takes the micro-batch: it runs as it stands.');
      return null;
    }
    const mayFit = recorded === null || (own === null && fitsAsItStands(recorded, target.baseRung));
    if (mayFit && this.#launches.length === 0 && this.#watch(target, lease)) return null;
    if (recorded?.status === 'demoted') target.knownBad = recorded.known_bad_micro_batch;
    await this.deps.persist({ state: 'searching', reason: null, key: target.key });
    const found = await this.#measure(target, own === null ? recorded : null, this.request.journal);
    if (found === null)
      this.#note('No training step was seen in which the batch size could be set: it runs as it stands.');
    return found;
  }

  /** Whether a search came before this launch. */
  #searchedBefore(launch: number): boolean {
    return this.#launches.some((one) => one.purpose === 'search' && one.launch < launch);
  }

  /** Whether the run itself is to show what it takes. */
  #watch(target: Target, lease: Lease): boolean {
    if (!startsAsItStands(target, this.request.options)) return false;
    this.#first = new FirstRun(this.request, this.deps, target, this.#launches, lease);
    return true;
  }

  /** The same by a probe of what was recorded for other flags, else by a search; null: the script takes no batch from us. */
  async #measure(
    target: Target,
    recorded: Recommendation | null,
    seen: Observation[],
  ): Promise<Choice | RunReport | null> {
    let journal = seen;
    const mayHold = recorded !== null && configFrom(recorded, target.needs(target.own), this.request.options) !== null;
    if (mayHold && !this.#launches.some(({ purpose }) => purpose === 'search')) {
      const { recommendations } = await this.deps.records();
      const verified = await verify({ ...this.request, launches: this.#launches }, this.deps, target, recorded);
      this.#launched(verified.launches);
      if (verified.choice !== null) {
        const commands = withCommand(recorded.commands ?? [], target, verified.own);
        const again = { ...recorded, verified_at: new Date().toISOString(), commands };
        await recommendations.put(again, this.request.jobId);
        return this.#reused(target, recorded, verified.own, verified.choice);
      }
      this.#note(`${recorded.key} was recorded for other flags and does not hold for these: it is searched anew.`);
      journal = [...journal, ...verified.journal];
    }
    return this.#search(target, journal);
  }

  async #search(target: Target, journal: Observation[]): Promise<Choice | RunReport | null> {
    const { options } = this.request;
    const { recommendations } = await this.deps.records();
    const request = { ...this.request, launches: this.#launches, journal };
    const outcome = await new Search(request, this.deps, target, 'keep').run();
    this.#launched(outcome.allLaunches);
    if (outcome.undriveable) return null;
    if (outcome.action.type !== 'found') return await this.#withoutRun(target, outcome);
    const { answer } = outcome.action;
    const beside = await target.memory.sharingNote();
    await recommendations.put(recommendationOf(target, outcome, answer, new Date().toISOString()), this.request.jobId);
    Object.assign(target.own, ownOf(target, outcome.loop));
    const notes = [...answer.notes, ...(beside === null ? [] : [beside])];
    if (target.own.microBatch === null && options.effectiveBatch === null)
      notes.push(noBatchOfItsOwn(answer.config.micro_batch));
    for (const text of notes) this.deps.progress({ type: 'note', text });
    return { config: answer.config, notes };
  }

  #reused(target: Target, recommendation: Recommendation, own: OwnBatch, choice: Choice): Choice {
    this.deps.progress({ type: 'reused', recommendation });
    Object.assign(target.own, own);
    for (const text of choice.notes) this.deps.progress({ type: 'note', text });
    return choice;
  }

  #launched(all: WorkRequest['launches']): void {
    this.#launches.push(...all.slice(this.#launches.length));
  }

  async #run(target: Target, lease: Lease, first: Config | null): Promise<RunReport> {
    let config = first;
    let adopted = await this.#relaunches.begin();
    if (adopted === null) await this.#relaunches.jobProgress.lookSince(progressSince());
    for (;;) {
      const attempt = await this.#attempt(target, lease, config, adopted);
      adopted = null;
      config ??= this.#first?.config ?? null;
      if (config === null && !this.deps.signal.aborted) {
        const found = await this.#afterMisfit(target, attempt);
        if (found !== null && 'outcome' in found) return found;
        if (found !== null) {
          config = found.config;
          await target.memory.pack(lease);
          continue;
        }
      }
      const again = await this.#relaunches.next(target, attempt, config);
      if (again === null) return this.#handBack(target, attempt, config);
      // Another process of ours continues from the exit record in the launch's folder.
      if (letsGo(this.deps.signal)) throw new Detached();
      if (this.deps.signal.aborted) return this.#report(target, attempt, config);
      await this.#recordFailure(target, config, again);
      const how = again.resumes ? ', resuming' : this.#relaunches.jobProgress.made ? ', again from the beginning' : '';
      this.#note(`${again.why}${how}. ${attempt.diagnosis?.evidence ?? ''}`);
      config = again.config;
    }
  }

  /** What a job that ran out of memory as it stands is to run as; null: that was not so, or no search would help. */
  async #afterMisfit(target: Target, attempt: Attempt): Promise<Choice | RunReport | null> {
    const first = this.#first;
    const { session, exit, diagnosis } = attempt;
    if (first === null || exit.stuck !== undefined || diagnosis?.class !== 'device_oom') return null;
    if (diagnosis.cure === 'none' && diagnosis.reason === 'load') return this.#exhausted(target, attempt);
    if (diagnosis.cure === 'none' || diagnosis.cure === 'wait') return null;
    const resumes = await this.#relaunches.afterMisfit(target, attempt);
    if (resumes === null) return null;
    first.died(session, exit, diagnosis);
    await this.deps.persist({ state: 'searching', reason: null, key: target.key, journal: first.journal });
    this.#note(
      `Out of memory as it stands: what fits is searched, and it runs ${resumes}. ${diagnosis.evidence ?? ''}`,
    );
    this.#first = null;
    const { recommendations } = await this.deps.records();
    const recorded = await recommendations.get(target.key);
    const died = first.journal.at(-1)?.micro_batch ?? 0;
    const smaller = recorded !== null && recorded.micro_batch < died ? recorded : null;
    const found = await this.#measure(target, smaller, first.journal);
    if (found !== null) return found;
    return { ...this.#exhausted(target, attempt), failure: outgrown(diagnosis, first.journal.at(-1)?.micro_batch) };
  }

  #exhausted(target: Target, attempt: Attempt): RunReport {
    return { ...this.#report(target, attempt, null), exit_code: null, signal: null, outcome: 'exhausted' };
  }

  /** The report of a job that is not started again here; with `--requeue` what its next start needs is recorded first. */
  async #handBack(target: Target, attempt: Attempt, config: Config | null): Promise<RunReport> {
    const wanted = this.deps.signal.aborted ? null : this.#relaunches.forScheduler(target, attempt, config);
    const report = this.#report(target, attempt, config);
    if (wanted === null || report.outcome !== 'failed') return report;
    await this.#recordFailure(target, config, wanted);
    const next = wanted.smaller
      ? `Micro-batch ${config?.micro_batch} is recorded as too large: the next start takes a smaller one.`
      : 'The next start has expandable segments.';
    return { ...report, next_start: next };
  }

  /** So that the next launch, or another job of the same key, does not run out of memory in the same way. */
  async #recordFailure(
    target: Target,
    config: Config | null,
    next: Pick<Relaunch, 'config' | 'smaller'>,
  ): Promise<void> {
    if (config === null) return;
    if (next.smaller) {
      const { recommendations } = await this.deps.records();
      await recommendations.demote(target.key, config.micro_batch, this.request.jobId);
    } else if (next.config?.expandable_segments && !config.expandable_segments) {
      await this.#recordSegments(target, config);
    }
  }

  /** A job that ran out of memory late has expandable segments from now on. */
  async #recordSegments({ key }: Target, { micro_batch }: Config): Promise<void> {
    const { recommendations } = await this.deps.records();
    const recorded = await recommendations.get(key);
    if (recorded?.status !== 'verified' || recorded.micro_batch !== micro_batch) return;
    await recommendations.put({ ...recorded, expandable_segments: true }, this.request.jobId);
  }

  /** One launch, or an adopted one, until its whole tree is gone. */
  async #attempt(target: Target, lease: Lease, config: Config | null, adopted: Run | null): Promise<Attempt> {
    const { signal } = this.deps;
    const { jobProgress } = this.#relaunches;
    if (adopted === null && config !== null) this.#tellsOfCut(target, config);
    this.#growth = new Growth();
    const expandable = config?.expandable_segments === true || target.expandableSegments === 'on';
    const pieces = new Pieces(target.budgetBytes, expandable);
    const first = this.#first;
    const owner = { request: this.request, deps: this.deps, target, launches: this.#launches };
    const hooks: SessionHooks = {
      ...remarksTo(this.deps),
      onCut: (cut) => {
        this.#cut = cut;
        void this.deps.persist({ cut }).catch((err: unknown) => this.deps.log.warn({ err }, 'the cut is not recorded'));
      },
      onStep: (step, rank) => {
        this.#growth.add(step);
        const told = pieces.add(step, rank);
        if (told !== null) this.#note(told);
        this.deps.progress({ type: 'step', step: step.n });
        jobProgress.note(this.#launches.at(-1)?.dir as string);
        first?.stepped(step.n);
      },
      onMeasured: (measurement) => session && first?.measured(session, measurement),
    };
    let session: Session | null = null;
    session =
      adopted === null
        ? await launchJob(owner, { config, resume: jobProgress.made, watched: first !== null, hooks })
        : await Session.adopt(adopted, this.deps.log, hooks);
    await lease.attach(session.run);
    const last = this.#launches.at(-1);
    const { logFile } = session.run;
    this.deps.progress({ type: 'running', config, launch: last?.launch ?? 1, logFile, watched: first !== null });
    await this.deps.persist({
      state: 'running',
      reason: null,
      config,
      key: target.key,
      devices: target.devices.map((device) => device.id),
    });
    const exit = await this.#waitForEnd(session, signal);
    const failed = exit.code !== 0 || exit.ended_by !== 'job';
    await (failed ? first?.settled() : first?.succeeded(session, exit));
    const diagnosis = failed
      ? await diagnoseSession(session, exit, target.kind, {
          growth: this.#growth.perStep(),
          keptBy: this.#growth.keptBy,
          ...(await target.memory.surroundings()),
        })
      : null;
    if (exit.stuck === undefined) return { session, exit, diagnosis };
    this.#left = { run: session.run, exit };
    const verdict = diagnosis && { ...diagnosis, evidence: exit.error, line: null, advice: STILL_RUNNING_ADVICE };
    return { session, exit, diagnosis: verdict };
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
    session.run.end(isTimeUp(signal) ? 'timeout' : 'cancel');
    return session.ended();
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

  #report(target: Target, { session, exit, diagnosis }: Attempt, config: Config | null): RunReport {
    const { withheld } = this.#relaunches;
    const failure =
      diagnosis === null || withheld === null ? diagnosis : { ...diagnosis, advice: `${withheld} ${diagnosis.advice}` };
    const unseen = isHost(target.kind) ? unseenMemory(exit, target.memory.limitBytes) : null;
    if (unseen !== null) this.#note(unseen);
    const refused = unheardRefusal(exit, target.kind, session.run.logFile);
    if (refused !== null) this.#note(refused);
    if (exit.stuck !== undefined) this.#note(`${exit.error} ${STILL_RUNNING_ADVICE}`);
    return reportOf(
      this.#frame(target, config),
      exit,
      failure,
      isEnded(this.deps.signal) && !isTimeUp(this.deps.signal),
    );
  }

  /** The report after a search without an answer: the job ended as its last launch did. */
  async #withoutRun(target: Target, outcome: SearchOutcome): Promise<RunReport> {
    const { action, diagnosis } = outcome;
    const exhausted = action.type === 'exhausted';
    const last = this.#launches.at(-1);
    const run = exhausted || last === undefined ? null : await this.deps.runtime.adopt(last.dir);
    const exit = (await run?.wait()) ?? null;
    // Launches of a search do not write to the terminal, so their last lines are shown here.
    if (run !== null && this.request.foreground) {
      for (const line of lastLines(run.logFile)) this.#note(line);
    }
    // A launch that had given its reason may have been ended by us before it was gone: that signal is not its own.
    const ended = exit?.ended_by === 'cancel' && !isEnded(this.deps.signal);
    return {
      ...this.#frame(target, null),
      exit_code: ended ? FAILED : (exit?.code ?? null),
      signal: ended ? null : (exit?.signal ?? null),
      outcome: exhausted ? 'exhausted' : exit?.ended_by === 'timeout' ? 'timeout' : 'failed',
      failure: exhausted ? exhaustedDiagnosis(diagnosis, action, this.request.options, outcome.cut) : diagnosis,
    };
  }

  #frame(target: Target, config: Config | null): RunReport {
    const { jobId, options } = this.request;
    return emptyReport(jobId, {
      config: config && shown(config),
      cut: this.#cut,
      key: options.tune ? target.key : null,
      launches: this.#launches.length,
      wall_s: round((Date.now() - this.#started) / 1000, 2),
    });
  }
}

/** The exit code of a program that gives up. */
const FAILED = 1;
