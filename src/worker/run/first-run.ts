import { OomtuneError } from '../../common/errors.js';
import { homePath } from '../../common/home.js';
import { refusal } from '../../common/refusal.js';
import type { Diagnosis } from '../../contract/diagnosis.js';
import type { Exit } from '../../contract/launch.js';
import { asRecord, type Observation, type Probe } from '../../contract/measurement.js';
import type { JobOptions } from '../../contract/options.js';
import type { Recommendation } from '../../contract/recommendation.js';
import { type Config, sameRung } from '../../contract/rung.js';
import { KINDS } from '../../devices/index.js';
import { doubtOf, Tuner } from '../../tuner/index.js';
import type { Session } from '../launch/session.js';
import { allowedRungs, constraintsOf, withLoop } from '../search/constraints.js';
import { ledgerPeak, needOf, observeDeath, observeFit, observeWhole, withSpeed } from '../search/observe.js';
import { recommendationOf } from '../search/report.js';
import { unheardRefusal } from '../search/unheard.js';
import { type Measurement, stepsToGo } from '../search/worst-rank.js';
import type { Target } from '../target.js';
import type { Lease, WorkDeps, WorkRequest } from '../types.js';
import type { LastWrites } from './last-writes.js';
import { withCommand } from './reuse.js';
import { CACHING, holdsNote, isSameMemory } from './verification.js';

/** Steps after which the hook has sent its last measurement. */
const LAST_MARK = 40;
const WHY = 'the job itself, as it stands';

/** Whether the command as it stands is what is asked for, so that the run itself can tell whether it fits. */
export function startsAsItStands(target: Target, options: JobOptions): boolean {
  const { effectiveBatch, objective, maxBatch, microBatchTokens } = options;
  // Its first steps do not tell what its longest samples take, nor what its evaluation does.
  if (microBatchTokens !== undefined || options.probeEval) return false;
  const { carriers, minBatch: least } = target.plan;
  if (!options.tune || effectiveBatch !== null || objective !== 'max-batch' || target.fillsIn) return false;
  if (target.carrier('micro_batch') === 'none' || Object.values(carriers).includes('env')) return false;
  const minBatch = Math.max(options.minBatch, least ?? 1);
  const { microBatch } = target.own;
  const known = microBatch !== null;
  if (!known && (target.carrier('micro_batch') !== 'hook' || minBatch > 1 || maxBatch !== null)) return false;
  if (known && (microBatch < minBatch || microBatch > (maxBatch ?? microBatch))) return false;
  const [first] = allowedRungs(target, options, null);
  return first !== undefined && sameRung(first, target.baseRung);
}

/** The run of a job of which nothing is recorded, as it stands: measured as it goes, and recorded once it has lasted. */
export class FirstRun {
  /** As which it is recorded; null: not yet. */
  config: Config | null = null;
  readonly journal: Observation[];
  #last: Measurement | null = null;
  #growth = '';
  #stepped = false;
  #work: Promise<void> = Promise.resolve();

  constructor(
    private readonly request: WorkRequest,
    private readonly deps: WorkDeps,
    private readonly target: Target,
    private readonly launches: WorkRequest['launches'],
    private readonly lease: Lease,
    private readonly lastWrites: Pick<LastWrites, 'tell'>,
  ) {
    this.journal = [...request.journal];
  }

  /** It makes steps, whether they can be measured or not. */
  stepped(session: Session, step: number): void {
    if (step <= LAST_MARK || this.#stepped) return;
    this.#stepped = true;
    session.dismiss();
    if (this.#last === null && this.config === null) this.deps.progress({ type: 'lasts', config: null, record: null });
  }

  /** It has made so many steps more. */
  measured(session: Session, measurement: Measurement): void {
    if (this.config !== null) return;
    this.#last = measurement;
    const probe = this.#probe(this.#size(session, measurement) ?? 1);
    if (measurement.steps >= probe.steps && stepsToGo(probe, measurement) === 0)
      this.#work = this.#work.then(() => this.#judge(session, this.#fit(session, measurement)));
  }

  /** It ended well: that is proof enough, however few steps it made. */
  async succeeded(session: Session, exit: Exit): Promise<void> {
    await this.#work;
    const { microBatch } = this.target.own;
    if (this.config !== null || exit.stuck !== undefined) return;
    const last = this.#last && { ...this.#last, short: true };
    if (last !== null) await this.#judge(session, this.#fit(session, last));
    else if (unheardRefusal(exit, this.target.kind, session.logFile) !== null) return;
    else if (microBatch !== null && this.target.carrier('micro_batch') !== 'hook')
      await this.#judge(
        session,
        observeWhole(this.#probe(microBatch), this.#ran(session), needOf(exit, session.xlaPool).bytes),
      );
  }

  /** It failed: nothing more is recorded of it. */
  settled(): Promise<void> {
    return this.#work;
  }

  /** It ran out of memory: the search that follows knows that this size does not fit. */
  died(session: Session, exit: Exit, diagnosis: Diagnosis): void {
    const { launch } = this.#ran(session);
    const size = this.#size(session, this.#last);
    if (size === null || this.journal.some((one) => one.launch === launch)) return;
    const observation = observeDeath(this.#probe(size), this.#ran(session), diagnosis, exit);
    this.journal.push(observation);
    this.deps.progress({ type: 'probe', observation, record: asRecord(observation, WHY) });
  }

  #size({ exception, loop }: Session, measurement: Measurement | null): number | null {
    const { microBatch } = this.target.own;
    return microBatch ?? (exception?.micro_batch || null) ?? measurement?.micro_batch ?? loop?.own_batch ?? null;
  }

  #ran(session: Session): { launch: number; life: number; fresh: boolean; asked: number } {
    const launch = this.launches.findLast(({ purpose }) => purpose === 'run')?.launch ?? 1;
    return { launch, life: launch, fresh: true, asked: session.loopsSince ?? session.startedAt };
  }

  #probe(size: number): Probe {
    const { target } = this;
    const caching = KINDS[target.kind].cachingAllocator;
    return {
      rung: target.baseRung,
      micro_batch: size,
      accumulation: (target.own.accumulation ?? 1) / target.loopAccumulation,
      steps: Math.max(this.request.options.steps, caching ? CACHING.steps : 0),
      rest_steps: caching ? CACHING.restSteps : 0,
      ...doubtOf(target.memory.roomBytes),
      fresh: true,
      purpose: 'own',
      why: WHY,
    };
  }

  #fit(session: Session, measurement: Measurement): Observation {
    const { target } = this;
    target.own.accumulation ??= measurement.own_accumulation ?? 1;
    target.own.samples ??= session.loop?.samples ?? null;
    const total = ledgerPeak(session.run.ledger()) ?? measurement.total_bytes;
    const probe = this.#probe(this.#size(session, measurement) as number);
    const fit = observeFit(probe, this.#ran(session), { ...measurement, total_bytes: total }, false);
    const { loopAccumulation: times, worldSize } = target;
    return withSpeed(fit, { batches: null, times, worldSize });
  }

  /** Records it where the tuner says that it fits. Never rejects: the job runs all the same. */
  async #judge(session: Session, observation: Observation): Promise<void> {
    const { target, request, deps } = this;
    if (this.config !== null || deps.signal.aborted) return;
    const { loop = null, cut, hello } = session;
    const seen = { loop, ownAmp: false, samples: loop?.samples ?? null, mostBytes: null };
    const tuner = new Tuner(constraintsOf(request.options, target, 'keep', seen));
    tuner.tell(observation);
    const action = tuner.next();
    if (action.type === 'exhausted' && action.cause === 'growth' && this.#growth === '') {
      this.#growth = action.why;
      deps.progress({ type: 'note', text: `${action.why}. It goes on as it stands.` });
    }
    if (action.type !== 'found') return;
    const answer = withLoop(action.answer, target.loopAccumulation);
    const seenAs = { observations: [observation], whys: [WHY], loop, cut, torch: hello?.torch ?? null };
    try {
      const records = await deps.records();
      const recommendations = records.atOnce ?? records.recommendations; // its later steps and its end try again
      const found = recommendationOf(target, seenAs, answer, new Date().toISOString());
      const before = await recommendations.get(target.key);
      const wider = before?.status === 'verified' && before.max_micro_batch > found.max_micro_batch ? before : null;
      const holds = wider !== null && isSameMemory(wider, observation);
      if (wider === null) await recommendations.put(found, request.jobId);
      else if (holds) await recommendations.put(this.#withThis(wider, found), request.jobId);
      await this.#recorded(answer.config, observation, wider === null || holds);
      session.dismiss();
      const beside = await target.memory.sharingNote();
      const notes = wider === null ? answer.notes : holds ? [holdsNote('The run', observation)] : [];
      for (const text of [...notes, ...(beside === null ? [] : [beside])]) deps.progress({ type: 'note', text });
    } catch (error) {
      if (deps.signal.aborted) return;
      if (request.purpose === 'submit') deps.log.warn({ err: error }, 'what the job takes could not be recorded'); // nobody reads the note
      const known = error instanceof OomtuneError ? error : refusal(error, homePath());
      const why = known === null ? String(error) : `${known.message} ${known.remedy}`;
      this.lastWrites.tell(`What the job takes could not be recorded: ${why}`);
    }
  }

  /** What was recorded of larger sizes for other flags, for this command, too. */
  #withThis(wider: Recommendation, { verified_at, own_batch, own_accumulation }: Recommendation): Recommendation {
    const own = {
      microBatch: own_batch ?? null,
      accumulation: own_accumulation ?? null,
      samples: this.target.own.samples,
    };
    return { ...wider, verified_at, commands: withCommand(wider.commands ?? [], this.target, own) };
  }

  /** From here on it is a job with a configuration, for another daemon, too. */
  async #recorded(config: Config, observation: Observation, packs: boolean): Promise<void> {
    const { launches, deps, journal, target } = this;
    this.config = config;
    // What a smaller size of it keeps.
    target.own.microBatch ??= observation.micro_batch;
    journal.push(observation);
    const last = launches.findLast(({ purpose }) => purpose === 'run');
    if (last !== undefined) last.config = config;
    await deps.persist({ config, launches, journal });
    if (packs) await target.memory.pack(this.lease);
    deps.progress({ type: 'lasts', config, record: asRecord(observation, WHY) });
  }
}
