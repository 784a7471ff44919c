import type { RunReport } from '../../contract/reports.js';
import type { Config } from '../../contract/rung.js';
import { withRecordedKnobs } from '../knob/recorded-knobs.js';
import { Detached, letsGo } from '../launch/detached.js';
import { giveBack, StillRunning } from '../launch/still-running.js';
import { prepare } from '../prepare.js';
import { rehearse } from '../rehearsal/rehearsal.js';
import { goesToModel } from '../search/at-model.js';
import { outgrown } from '../search/exhausted.js';
import type { Target } from '../target.js';
import type { Lease, WorkDeps, WorkRequest } from '../types.js';
import { type Attempt, Attempts } from './attempts.js';
import { Choices } from './choices.js';
import { FirstRun, startsAsItStands } from './first-run.js';
import { JobReports } from './job-reports.js';
import { LastWrites } from './last-writes.js';
import { type Relaunch, Relaunches } from './relaunches.js';
import { progressSince } from './resumption.js';
import type { Choice } from './reuse.js';
import { TimeLimit } from './time-limit.js';

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
  /** Those of an earlier process included; who makes one adds it. */
  readonly #launches: WorkRequest['launches'];
  readonly #relaunches: Relaunches;
  readonly #attempts: Attempts;
  readonly #choices: Choices;
  readonly #reports: JobReports;
  readonly #lastWrites: LastWrites;
  /** The run that shows what it takes; null: that is known, or nothing is to be recorded. */
  #first: FirstRun | null = null;

  constructor(
    private readonly request: WorkRequest,
    private readonly deps: WorkDeps,
  ) {
    this.#launches = [...request.launches];
    this.#relaunches = new Relaunches(request, deps);
    this.#lastWrites = new LastWrites(request, deps);
    this.#attempts = new Attempts(request, deps, this.#launches, this.#relaunches.jobProgress, this.#lastWrites);
    this.#choices = new Choices(request, deps, this.#launches);
    this.#reports = new JobReports(request, deps, this.#launches, this.#attempts);
  }

  async complete(): Promise<RunReport> {
    const target = await prepare(this.request, this.deps);
    const lease = await target.memory.acquire();
    let keep = false;
    try {
      const begun = this.#launches.findLast((launch) => launch.purpose === 'run');
      if (begun && this.request.options.tune) await this.#choices.recorded(target);
      let choice: Choice | null = begun?.config ? { config: begun.config, notes: [] } : null;
      if (!begun && this.request.options.tune) {
        const chosen = await this.#choices.choose(target, () => this.#watch(target, lease));
        if (chosen !== null && 'action' in chosen) return await this.#reports.withoutRun(target, chosen);
        choice = chosen;
        if (this.request.options.probeEval) {
          const rehearsed = await this.#rehearsed(target, chosen);
          if ('outcome' in rehearsed) return rehearsed;
          choice = rehearsed.choice;
        }
      } else if (begun && choice === null && !this.#searchedBefore(begun.launch)) this.#watch(target, lease);
      if (choice !== null) await target.memory.pack(lease);
      return await this.#run(target, lease, choice?.config ?? null);
    } catch (error) {
      keep = error instanceof Detached;
      if (error instanceof StillRunning) this.#attempts.left = error;
      throw error;
    } finally {
      if (!keep) await this.#lastWrites.wait(giveBack(lease, this.#attempts.left), RESERVED);
    }
  }

  /** The choice after a rehearsal with it; a report: it would run out of memory, and nothing is to be run. */
  async #rehearsed(target: Target, choice: Choice | null): Promise<{ choice: Choice | null } | RunReport> {
    const { recommendations } = await this.deps.records();
    const recorded = await recommendations.get(target.key);
    if (choice === null || !recorded?.probes.some(({ step_s }) => step_s !== null)) {
      this.#note('Nothing is rehearsed: no training step of the command was seen, so that it could not be cut short.');
      return { choice };
    }
    await this.deps.persist({ state: 'searching', reason: 'it is rehearsed', key: target.key });
    const owner = { request: this.request, deps: this.deps, target, launches: this.#launches };
    const { config, rehearsal, notes, failure } = await rehearse(owner, choice.config);
    this.#reports.rehearsal = rehearsal;
    for (const text of notes) this.#note(text);
    if (failure !== null) return this.#reports.unfit(target, failure);
    return { choice: config === null ? choice : { ...choice, config } };
  }

  /** Whether a search came before this launch. */
  #searchedBefore(launch: number): boolean {
    return this.#launches.some((one) => one.purpose === 'search' && one.launch < launch);
  }

  /** Whether the run itself is to show what it takes. */
  #watch(target: Target, lease: Lease): boolean {
    if (!startsAsItStands(target, this.request.options)) return false;
    this.#first = new FirstRun(this.request, this.deps, target, this.#launches, lease, this.#lastWrites);
    return true;
  }

  async #run(target: Target, lease: Lease, first: Config | null): Promise<RunReport> {
    let config = first;
    let adopted = await this.#relaunches.begin();
    if (adopted === null) await this.#relaunches.jobProgress.lookSince(progressSince());
    const less = (now: Config) => this.#relaunches.less(target, now);
    let why: string | null = null;
    for (;;) {
      const attempt = await this.#attempts.make(target, lease, { config, adopted, first: this.#first, less, why });
      adopted = null;
      const atModel = this.deps.signal.aborted ? null : goesToModel(target, attempt.session);
      if (atModel !== null) {
        this.#note(atModel);
        continue;
      }
      config ??= this.#first?.config ?? null;
      if (config === null && !this.deps.signal.aborted) {
        const found = await this.#afterMisfit(target, attempt).finally(() => attempt.session.close());
        if (found !== null && 'outcome' in found) return found;
        if (found !== null) {
          config = found.config;
          await target.memory.pack(lease);
          continue;
        }
      }
      const again =
        attempt.ended === null || config === null
          ? await this.#relaunches.next(target, attempt, config)
          : this.#relaunches.atCheckpoint(attempt.ended, config);
      if (again === null) return this.#handBack(target, attempt, config);
      // Another process of ours continues from the exit record in the launch's folder.
      if (letsGo(this.deps.signal)) throw new Detached();
      if (this.deps.signal.aborted) return this.#ended(target, attempt, config);
      await this.#recordFailure(target, config, again);
      const how = again.resumes ? ', resuming' : this.#relaunches.jobProgress.made ? ', again from the beginning' : '';
      this.#note(`${again.why}${how}. ${attempt.diagnosis?.evidence ?? ''}`);
      ({ config, why } = again);
      // What it takes is known, and the next is to be cut, not watched.
      if (config !== null) this.#first = null;
    }
  }

  /** What a job that ran out of memory as it stands is to run as; null: that was not so, or no search would help. */
  async #afterMisfit(target: Target, attempt: Attempt): Promise<Choice | RunReport | null> {
    const first = this.#first;
    const { session, exit, diagnosis } = attempt;
    if (first === null || exit.stuck !== undefined || diagnosis?.class !== 'device_oom') return null;
    if (diagnosis.cure === 'none' && diagnosis.reason === 'load') return this.#exhausted(target, attempt);
    if (diagnosis.cure === 'none' || diagnosis.cure === 'wait') return null;
    // A search would run all of a script that trains elsewhere once more, and see no more of it.
    if (target.hidesProgram && session.loop === null && session.exception === null) return null;
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
    const found = await this.#choices.measure(target, smaller, first.journal, session);
    if (found !== null) return 'action' in found ? this.#reports.withoutRun(target, found) : found;
    const failure = outgrown(diagnosis, first.journal.at(-1)?.micro_batch, this.#choices.undriveable);
    return { ...this.#exhausted(target, attempt), failure };
  }

  #exhausted(target: Target, attempt: Attempt): RunReport {
    return { ...this.#ended(target, attempt, null), exit_code: null, signal: null, outcome: 'exhausted' };
  }

  #ended(target: Target, attempt: Attempt, config: Config | null): RunReport {
    return this.#reports.ended(target, attempt, config, this.#relaunches.withheld, this.#choices.sawTraining);
  }

  /** The report of a job that is not started again here; with `--requeue` what its next start needs is recorded first. */
  async #handBack(target: Target, attempt: Attempt, config: Config | null): Promise<RunReport> {
    const wanted = this.deps.signal.aborted ? null : this.#relaunches.forScheduler(target, attempt, config);
    const report = this.#ended(target, attempt, config);
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

  #note(text: string): void {
    this.deps.progress({ type: 'note', text: text.trim() });
  }
}

const RESERVED = 'what was reserved for it is freed when a job or a daemon next asks for it here';
