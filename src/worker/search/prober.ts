import type { Diagnosis } from '../../contract/diagnosis.js';
import type { Loop } from '../../contract/hook.js';
import type { Exit } from '../../contract/launch.js';
import type { Observation, Probe } from '../../contract/measurement.js';
import { type Cut, type Rung, rungName } from '../../contract/rung.js';
import { failsAlone, largerStart } from '../../tuner/index.js';
import type { Constraints } from '../../tuner/types.js';
import { namingLimit } from '../launch/ended-late.js';
import { isLost } from '../launch/ends.js';
import type { Session } from '../launch/session.js';
import type { Target } from '../target.js';
import type { WorkDeps, WorkRequest } from '../types.js';
import { goesToModel } from './at-model.js';
import { IgnoredFlag } from './ignored-flag.js';
import { LoopFacts } from './loop-facts.js';
import {
  diagnoseSession,
  ledgerPeak,
  neededBytes,
  needOf,
  observeDeath,
  observeFit,
  observeWhole,
  type ProbeRun,
  withSpeed,
} from './observe.js';
import { mayBeOfFork, Processes } from './processes.js';
import {
  endedUntrained,
  failsAbove,
  neverReached,
  steppedByHand,
  trainedAtItsOwn,
  uncut,
  undriveable,
  usesOwnBatch,
} from './undriveable.js';
import { unheardDiagnosis, unheardRefusal } from './unheard.js';
import type { Measurement } from './worst-rank.js';

/** Loops that may end before anything is trained, until the search gives up. */
const MOST_SKIPPED = 8;

/** Runs the probes of a search, each in the live process if that suits, else in a new one. */
export class Prober {
  readonly facts: LoopFacts;
  torch: string | null = null;
  /** Seconds from the first launch to its training loop. */
  startupSeconds: number | null = null;
  /** Of the last launch that died. */
  diagnosis: Diagnosis | null = null;
  /** The script took no batch from us. */
  undriveable = false;
  cut: Cut | null = null;
  /** The kinds of the modules whose calls were cut before a size ran out of memory; null: not told. */
  cutCalls: string[] | null = null;
  /** What a process failed with at another size than its first: each size gets a process of its own. Null: none did. */
  apart: string | null = null;
  readonly #processes: Processes;
  /** The largest size that fitted on each rung. */
  readonly #taken = new Map<string, number>();
  readonly #ignoredFlag: IgnoredFlag;
  #measured = false;
  /** Processes whose supervisor was killed. */
  #lost = 0;
  /** Times that it waited for memory of others. */
  #waits = 0;
  /** What became of the script at its own batch; null: not asked yet. */
  #atOwn: Diagnosis['class'] | null = null;
  /** Why the script's variables were set: what it failed with, without its numbers, and its loop as it was then. Null: they were not. */
  #unset: { failure: string; loop: Loop } | null = null;

  constructor(
    private readonly request: WorkRequest,
    private readonly deps: WorkDeps,
    private readonly target: Target,
    private readonly goal: Constraints['goal'],
    spare: Session | null = null,
  ) {
    this.facts = new LoopFacts(request, target);
    this.#ignoredFlag = new IgnoredFlag(target.carrier('micro_batch'));
    this.#processes = new Processes(request, deps, target, this.facts, spare);
  }

  /** Launches made, those of an earlier process included. */
  get launches(): WorkRequest['launches'] {
    return this.#processes.launches;
  }

  /** Starts the first process, if the hook drives: it shows the script's settings before a size is chosen. */
  async begin(rung: Rung, expandable = false): Promise<void> {
    if (this.#processes.mode === 'probe') await this.#processes.open(rung, expandable, null);
  }

  /** Ends the process without waiting. */
  interrupt(): void {
    this.#processes.interrupt();
  }

  close(): Promise<void> {
    return this.#processes.close();
  }

  async measure(probe: Probe): Promise<Observation> {
    const observation = await this.#measure(probe);
    return this.#processes.renewable ? { ...observation, renewable: true } : observation;
  }

  async #measure(probe: Probe): Promise<Observation> {
    const processes = this.#processes;
    if (!processes.takes(probe)) await processes.begin(probe);
    const session = processes.session as Session;
    processes.rung = probe.rung;
    const fresh = processes.used === 0;
    const ran = { launch: this.launches.length, life: processes.lives, fresh, asked: Date.now() };
    const carried = processes.mode !== 'probe' && fresh;
    processes.used += 1;
    this.deps.progress({ type: 'probing', probe, launch: ran.launch });
    const measurement = session.exit === null && session.exception === null ? await this.#ask(probe, carried) : null;
    this.startupSeconds ??= session.startupSeconds;
    // What a launch measures by itself starts with its loop.
    if (carried) {
      ran.asked = session.loopsSince ?? ran.asked;
      if (probe.knob) this.facts.loop ??= session.loop;
      else this.facts.boundByData(session.loop, probe.micro_batch);
    }
    this.torch ??= session.hello?.torch ?? null;
    this.cut ??= session.cut;
    if (measurement === null) return this.#afterDeath(session, probe, ran);
    // One sample broadcasts with anything, so only a larger size proves that sizes can be set.
    this.#measured ||= probe.micro_batch > 1;
    this.facts.learn(measurement);
    // A flag's batch shows in the loader; a job at another batch is recognised by its number of samples.
    this.target.own.samples ??= session.loop?.samples ?? null;
    const name = rungName(probe.rung);
    this.#taken.set(name, Math.max(this.#taken.get(name) ?? 0, sizeOf(probe)));
    const goesOn = processes.mode === 'probe' || (processes.mode === 'measure' && (session.loop?.can.batch ?? false));
    const alive = goesOn && !measurement.short && this.apart === null && !probe.knob;
    processes.spent = !alive;
    if (!alive && !session.renewable) await this.close();
    if (measurement.total_bytes === null) measurement.total_bytes = ledgerPeak(session.run.ledger());
    const fit = withSpeed(observeFit(probe, ran, measurement, alive), {
      batches: processes.mode === 'probe' ? measurement.accumulation : null,
      times: this.target.loopAccumulation,
      worldSize: this.target.worldSize,
    });
    return (carried && !probe.knob && this.#unreached(session, fit)) || fit;
  }

  /** The observation of a flag that changed nothing; null: it may have changed something. */
  #unreached({ loop }: Session, fit: Observation): Observation | null {
    const asked = fit.micro_batch * fit.accumulation;
    const verdict = this.#ignoredFlag.verdict({ asked, ran: loop?.own_batch ?? null, bytes: fit.peaks.total_bytes });
    if (verdict === null) return null;
    this.diagnosis = verdict;
    return { ...fit, outcome: verdict.class as 'user_error', evidence: verdict.evidence, alive: false };
  }

  /** The observation of a probe whose process ended. */
  async #afterDeath(session: Session, probe: Probe, ran: ProbeRun): Promise<Observation> {
    const exit = await this.#processes.deathOf(session);
    this.cutCalls = session.exception?.cut_calls ?? this.cutCalls;
    if (!session.renewable) this.#processes.session = null;
    // A value too large for the first rung has shown which others there are.
    if (probe.knob) this.facts.loop ??= session.loop;
    if (isLost(exit) && this.#lost < this.request.options.retries) {
      this.#lost += 1;
      this.deps.progress({ type: 'note', text: 'The process was lost: the same size is measured again.' });
      return this.measure(probe);
    }
    const goodbye = session.exception === null ? session.goodbye : null;
    this.#processes.spent = true;
    // A loop shorter than the search continues in another process.
    if (goodbye?.reason === 'loop_over' && this.#processes.used > 1) return this.measure(probe);
    if (goodbye?.reason === 'other_loop' && (this.#processes.hook.skippedLoops ?? 0) < MOST_SKIPPED)
      return this.#pastLook(probe);
    const atModel = goesToModel(this.target, session);
    if (atModel !== null) return this.#atModel(probe, atModel);
    // A second size may be the cause (an optimizer made for the first, say), so this is no verdict on the command, nor on the fork.
    const isSecond = this.#processes.mode === 'measure' && this.#processes.used > 1;
    if (goodbye !== null && session.life > 1)
      return isSecond ? this.#alone(probe, goodbye.message) : this.#inStart(probe, goodbye.message);
    if (goodbye?.reason === 'uncut') {
      this.diagnosis = uncut(goodbye, this.facts.loop, this.request.options);
      return { ...observeDeath(probe, ran, this.diagnosis, exit), uncut: true };
    }
    if (this.#processes.mode === 'probe' && goodbye !== null && this.#processes.unmade && !this.#measured) {
      this.diagnosis = steppedByHand(); // nor was an optimizer made later
      return observeDeath(probe, ran, this.diagnosis, exit);
    }
    if (this.#processes.mode === 'probe' && goodbye !== null) {
      this.undriveable = true;
      this.diagnosis = undriveable(goodbye, probe.steps);
      return observeDeath(probe, ran, this.diagnosis, exit);
    }
    const whole =
      exit.code === 0 && exit.ended_by === 'job' && session.exception === null && this.#processes.mode !== 'probe';
    const refused = whole ? unheardRefusal(exit, this.target.kind, session.logFile) : null;
    if (refused !== null) {
      this.diagnosis = unheardDiagnosis(refused, exit);
      return observeDeath(probe, ran, this.diagnosis, exit);
    }
    if (whole) {
      const { bytes, most } = needOf(exit, session.xlaPool);
      this.facts.limitedTo(most);
      return observeWhole(probe, ran, bytes);
    }
    // If the hook saw the exception, the exit of the launcher (a shell script goes on after an error) says nothing.
    const end = session.exception === null ? exit : { ...exit, code: 1, signal: null };
    const found = await diagnoseSession(session, end, this.target.kind, await this.target.memory.surroundings());
    const verdict = this.#tooLarge(probe, namingLimit(found, end, 'search', this.request.options));
    if (await this.#isFreeAgain(verdict, exit, probe)) return this.measure(probe);
    const evidence = verdict.evidence ?? verdict.class;
    if (verdict.class === 'user_error' && isSecond) return this.#alone(probe, evidence);
    if (mayBeOfFork(session, verdict) || this.#refusesWhatFitted(session, verdict, probe))
      return this.#inStart(probe, evidence);
    this.undriveable = verdict.class === 'ok';
    this.diagnosis = verdict.class === 'ok' ? endedUntrained(session) : verdict;
    // Only the first size of a process is that of its command.
    if (this.#processes.mode === 'measure' && verdict.class === 'device_oom' && !probe.knob && ran.fresh)
      this.diagnosis = neverReached(probe, session.loop?.own_batch, this.target) ?? verdict;
    const { waited_for_loader: waited, without_optimizer: unmade, gradients } = session.exception ?? {};
    const trainedAlone =
      this.#processes.mode === 'probe' && session.loop === null
        ? trainedAtItsOwn(verdict, unmade === true, gradients !== false)
        : null;
    if (trainedAlone !== null && (waited || unmade) && !this.#processes.hook.atCall) {
      this.#processes.unmade = unmade === true;
      return this.#fromFirstCall(probe);
    }
    const fitted = this.#taken.get(rungName(probe.rung)) ?? 0;
    const refuses = verdict.class === 'user_error' && !probe.knob && fitted > 0 && fitted < sizeOf(probe);
    this.diagnosis = trainedAlone ?? (refuses ? failsAbove(fitted, sizeOf(probe), verdict) : this.diagnosis);
    const death = observeDeath(probe, ran, this.diagnosis, exit);
    const atOwn = verdict.class !== 'user_error' || failsAlone(death) ? null : await this.#atItsOwn(probe);
    if (atOwn !== 'ok' && atOwn !== 'device_oom') return death;
    const loop = this.facts.loop as Loop;
    const { own_batch: own, place } = loop;
    const failure = evidence.replace(/\d+/g, '');
    const { setsVariables = false } = this.#processes.hook;
    if (failure === this.#unset?.failure) await this.#withoutVariables(this.#unset.loop);
    else if (place === 'loader' && !setsVariables) return this.#withVariables(probe, { failure, loop });
    const start = this.#startAbove(probe, own as number);
    if (start !== null) return { ...death, begin_at: start };
    this.diagnosis = usesOwnBatch(own as number, probe.micro_batch, verdict, place, atOwn === 'ok');
    return observeDeath(probe, ran, this.diagnosis, exit);
  }

  /** Where a smaller size fitted, what the machine refuses is too much for this one; else no size helps. */
  #tooLarge(probe: Probe, verdict: Diagnosis): Diagnosis {
    const fitted = this.#taken.get(rungName(probe.rung)) ?? Number.POSITIVE_INFINITY;
    if (verdict.class !== 'host_oom' || verdict.reason !== 'limit' || fitted >= sizeOf(probe)) return verdict;
    return { ...verdict, class: 'device_oom', cure: 'smaller' };
  }

  /** A new fork ran out of memory before its training loop, though a size as large fitted before, so a start has to confirm that. */
  #refusesWhatFitted({ life, loopsSince }: Session, verdict: Diagnosis, probe: Probe): boolean {
    const fitted = sizeOf(probe) <= (this.#taken.get(rungName(probe.rung)) ?? 0);
    return verdict.class === 'device_oom' && life > 1 && loopsSince === null && fitted;
  }

  /** Repeats the probe in a start that waits neither for a loader to be asked nor for an optimizer: the script's own batch may be too large. */
  async #fromFirstCall(probe: Probe): Promise<Observation> {
    this.deps.log.info(
      { probe },
      'out of memory at a batch of its own: sizes are set from the first call of its model on',
    );
    this.#processes.hook.atCall = true;
    await this.close();
    return this.measure(probe);
  }

  /** Repeats the probe in a start that leaves the loop alone which it has taken for the training's: others are then its own batch and samples. */
  async #pastLook(probe: Probe): Promise<Observation> {
    this.deps.log.info({ probe }, 'a loop over a loader ended before anything was trained: the next one is taken');
    const { hook } = this.#processes;
    hook.skippedLoops = (hook.skippedLoops ?? 0) + 1;
    this.facts.forget();
    await this.close();
    return this.measure(probe);
  }

  /** Repeats the probe in a start in which the script's variables have the size that its loader's batches have. */
  async #withVariables(probe: Probe, unset: { failure: string; loop: Loop }): Promise<Observation> {
    this.deps.log.info({ probe }, 'the script uses its batch size elsewhere too: its variables are set with it');
    this.#processes.hook.setsVariables = true;
    this.#unset = unset;
    this.facts.loop = null;
    return this.measure(probe);
  }

  /** Goes on without them: they changed nothing of the failure, so they have no part in it. */
  async #withoutVariables(loop: Loop): Promise<void> {
    if (!this.#processes.hook.setsVariables) return;
    this.#processes.hook.setsVariables = false;
    this.facts.loop = loop;
    await this.close();
  }

  /** A larger size for the search to begin at, as the script may only need more samples than these (a loss of pairs, say). Null: there is none. */
  #startAbove({ knob, rung, micro_batch: tried }: Probe, own: number): number | null {
    if (knob || this.#taken.has(rungName(rung))) return null;
    const { maxBatch, effectiveBatch } = this.request.options;
    const most = Math.min(maxBatch ?? own, (effectiveBatch ?? Number.POSITIVE_INFINITY) / this.target.worldSize);
    return largerStart(tried, own, most);
  }

  /** Repeats the probe in a start whose batches are cut at the model's call, where the framework's own way would train something else. */
  async #atModel(probe: Probe, text: string): Promise<Observation> {
    this.deps.progress({ type: 'note', text });
    this.cut = null;
    await this.close();
    return this.measure(probe);
  }

  /** Repeats the probe in a process of its own, as all that follow. */
  #alone(probe: Probe, why: string): Promise<Observation> {
    this.deps.log.info({ probe, why }, 'a process failed at its second size: each gets a process of its own');
    this.apart = why;
    return this.measure(probe);
  }

  /** Repeats the probe in a start: the failure may be the fork's own. Where that fails, too, it was not, and forks may follow. */
  async #inStart(probe: Probe, why: string): Promise<Observation> {
    this.deps.log.info({ probe, why }, 'a forked process failed: the same size is measured in a new start');
    const { hook } = this.#processes;
    hook.forks = false;
    await this.close();
    const observation = await this.measure(probe);
    hook.forks = observation.outcome !== 'fit';
    return observation;
  }

  /** Waits if others took memory since the search began. False: nobody did, or it waited often enough. */
  async #isFreeAgain(verdict: Diagnosis, exit: Exit, { micro_batch: microBatch }: Probe): Promise<boolean> {
    const room = this.target.memory.roomBytes;
    const needed = neededBytes(exit, verdict);
    const others = verdict.reason === 'neighbour';
    if (verdict.cure !== 'wait' || (needed ?? 0) > room) return false;
    if (this.#waits >= (others ? this.request.options.retries : 1)) return false;
    this.#waits += 1;
    const reason = others ? 'memory that other processes held' : 'memory though enough was free';
    const text = `Micro-batch ${microBatch} ran out of ${reason}: the same size is measured again once it can be had.`;
    this.deps.progress({ type: 'note', text });
    return this.target.memory.waitForMemory(Math.min(needed ?? room, room));
  }

  /** What becomes of the script at its own batch, where the first probe failed: the size may be the reason. Null: that is not asked. */
  async #atItsOwn(probe: Probe): Promise<Diagnosis['class'] | null> {
    const own = this.facts.loop?.own_batch ?? null;
    const first = this.#processes.mode === 'probe' && this.goal === 'search' && !this.#measured;
    if (!first || own === null || own === probe.micro_batch) return null;
    if (this.#atOwn !== null) return this.#atOwn;
    await this.#processes.begin(probe, null);
    const trains = await this.#ask({ ...probe, micro_batch: own }, false);
    const session = this.#processes.session as Session;
    const verdict = trains === null ? await diagnoseSession(session, await session.ended(), this.target.kind) : null;
    await this.close();
    this.#atOwn = verdict?.class ?? 'ok';
    return this.#atOwn;
  }

  async #ask(probe: Probe, carried: boolean): Promise<Measurement | null> {
    const session = this.#processes.session as Session;
    if (this.#processes.mode === 'none') {
      await session.ended();
      return null;
    }
    return session.ask({ ...probe, rung: this.target.hookRung(probe.rung) }, carried);
  }
}

/** What is searched: the value of a knob, or samples. */
const sizeOf = ({ knob, micro_batch }: Probe): number => knob?.value ?? micro_batch;
