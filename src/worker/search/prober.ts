import type { Diagnosis } from '../../contract/diagnosis.js';
import type { Loop } from '../../contract/hook.js';
import type { Exit } from '../../contract/launch.js';
import type { Observation, Probe } from '../../contract/measurement.js';
import { type Cut, type Rung, rungName, sameRung } from '../../contract/rung.js';
import type { Constraints } from '../../tuner/types.js';
import { prepareDiagnosis } from '../diagnosis/index.js';
import { isLost } from '../launch/ends.js';
import { launchSearch } from '../launch/launch.js';
import type { Session } from '../launch/session.js';
import type { HookMode } from '../launch/session-request.js';
import { StillRunning } from '../launch/still-running.js';
import { EXPANDABLE_SEGMENTS } from '../memory/allocator.js';
import type { Target } from '../target.js';
import type { WorkDeps, WorkRequest } from '../types.js';
import { IgnoredFlag } from './ignored-flag.js';
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
import { neverReached, trainedAtItsOwn, uncut, undriveable, usesOwnBatch } from './undriveable.js';
import { unheardDiagnosis, unheardRefusal } from './unheard.js';
import type { Measurement } from './worst-rank.js';

/** Runs the probes of a search, each in the live process if that suits, else in a new one. */
export class Prober {
  /** Those of an earlier process included. */
  readonly launches: WorkRequest['launches'];
  /** The script's own settings, as the hook saw them. */
  loop: Loop | null = null;
  /** Samples in the data set of the loader whose batches are of the sizes that are asked for; null: not known. */
  samples: number | null = null;
  /** The program takes no more than this on a device, whatever the budget: its framework's memory pool is limited. Null: not known. */
  mostBytes: number | null = null;
  /** The script autocasts by itself. */
  ownAmp = false;
  torch: string | null = null;
  /** Seconds from the first launch to its training loop. */
  startupSeconds: number | null = null;
  /** Of the last launch that died. */
  diagnosis: Diagnosis | null = null;
  /** The script took no batch from us. */
  undriveable = false;
  cut: Cut | null = null;
  /** Tokens of the longest sample; null: samples are counted, or their lengths are not known. */
  longestTokens: number | null = null;
  readonly #mode: HookMode;
  #session: Session | null = null;
  #forks: boolean;
  /** Processes so far, starts and forks. */
  #lives: number;
  /** Probes of the live process. */
  #used = 0;
  /** The live process can take no more. */
  #spent = false;
  /** The largest size that fitted on each rung. */
  readonly #taken = new Map<string, number>();
  readonly #ignoredFlag = new IgnoredFlag();
  /** What a process failed with at another size than its first: each size gets a process of its own. Null: none did. */
  apart: string | null = null;
  #rung: Rung | null = null;
  /** How the current launch was started. */
  #started: { rung: Rung; expandable: boolean } | null = null;
  /** The live process has expandable segments. */
  #expandable = false;
  #learned = false;
  #measured = false;
  /** Processes whose supervisor was killed. */
  #lost = 0;
  /** The script trained on batches of its own before it asked a loader: sizes are set from its model's first call on. */
  #atCall = false;
  /** The script fails with other sizes of its loader's batches than its own: its variables that hold that size are set with it. */
  #setsVariables = false;
  /** Times that it waited for memory of others. */
  #waits = 0;

  constructor(
    private readonly request: WorkRequest,
    private readonly deps: WorkDeps,
    private readonly target: Target,
    private readonly goal: Constraints['goal'],
  ) {
    const drives = request.knob === undefined && target.carrier('micro_batch') === 'hook';
    this.#mode = drives ? 'probe' : target.listens ? 'measure' : 'none';
    this.launches = [...request.launches];
    this.#forks = (request.options.fork ?? true) && target.worldSize === 1;
    this.#lives = Math.max(0, ...request.journal.map(({ life, launch }) => life ?? launch));
  }

  /** Starts the first process, if the hook drives: it shows the script's settings before a size is chosen. */
  async begin(rung: Rung, expandable = false): Promise<void> {
    if (this.#mode === 'probe') await this.#open(rung, expandable, null);
  }

  /** Ends the process without waiting. */
  interrupt(): void {
    this.#session?.run.end('cancel');
  }

  /** Whether it learned something of the loop since the last call, which changes the bounds. */
  hasLearned(): boolean {
    const learned = this.#learned;
    this.#learned = false;
    return learned;
  }

  async measure(probe: Probe): Promise<Observation> {
    if (!this.#takes(probe)) await this.#begin(probe);
    const session = this.#session as Session;
    this.#rung = probe.rung;
    const ran = { launch: this.launches.length, life: this.#lives, fresh: this.#used === 0, asked: Date.now() };
    const carried = this.#mode !== 'probe' && this.#used === 0;
    this.#used += 1;
    this.deps.progress({ type: 'probing', probe, launch: ran.launch });
    const measurement = session.exit === null && session.exception === null ? await this.#ask(probe, carried) : null;
    this.startupSeconds ??= session.startupSeconds;
    // What a launch measures by itself starts with its loop.
    if (carried) {
      ran.asked = session.loopsSince ?? ran.asked;
      if (probe.knob) this.loop ??= session.loop;
      else this.#boundByData(session.loop, probe.micro_batch);
    }
    this.torch ??= session.hello?.torch ?? null;
    this.cut ??= session.cut;
    if (measurement === null) return this.#afterDeath(session, probe, ran);
    // One sample broadcasts with anything, so only a larger size proves that sizes can be set.
    this.#measured ||= probe.micro_batch > 1;
    this.#learn(measurement);
    // A flag's batch shows in the loader; a job at another batch is recognised by its number of samples.
    this.target.own.samples ??= session.loop?.samples ?? null;
    const name = rungName(probe.rung);
    this.#taken.set(name, Math.max(this.#taken.get(name) ?? 0, probe.micro_batch));
    const goesOn = this.#mode === 'probe' || (this.#mode === 'measure' && (session.loop?.can.batch ?? false));
    const alive = goesOn && !measurement.short && this.apart === null && !probe.knob;
    this.#spent = !alive;
    if (!alive && !session.renewable) await this.close();
    if (measurement.total_bytes === null) measurement.total_bytes = ledgerPeak(session.run.ledger());
    const fit = withSpeed(observeFit(probe, ran, measurement, alive), {
      batches: this.#mode === 'probe' ? measurement.accumulation : null,
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

  #takes(probe: Probe): boolean {
    const live = this.#session;
    const from = this.#rung;
    if (live === null || from === null || this.#spent || this.#expandable !== (probe.expandable_segments ?? false))
      return false;
    // A process that died before its first probe answers for that probe.
    const free = this.#used === 0 || (live.exit === null && !probe.fresh);
    if (this.#mode === 'probe') return free && this.#reaches(from, probe.rung);
    return free && sameRung(from, probe.rung) && this.#used > 0;
  }

  /** Whether a process that runs on one rung can go on to the other. */
  #reaches(from: Rung, to: Rung): boolean {
    return sameRung(from, to) || (this.loop?.can.switch_rung === true && this.target.canSwitch(from, to));
  }

  /** The observation of a probe whose process ended. */
  async #afterDeath(session: Session, probe: Probe, ran: ProbeRun): Promise<Observation> {
    const exit = await this.#deathOf(session);
    if (!session.renewable) this.#session = null;
    // A value too large for the first rung has shown which others there are.
    if (probe.knob) this.loop ??= session.loop;
    if (isLost(exit) && this.#lost < this.request.options.retries) {
      this.#lost += 1;
      this.deps.progress({ type: 'note', text: 'The process was lost: the same size is measured again.' });
      return this.measure(probe);
    }
    const goodbye = session.exception === null ? session.goodbye : null;
    this.#spent = true;
    // A loop shorter than the search continues in another process.
    if (goodbye?.reason === 'loop_over' && this.#used > 1) return this.measure(probe);
    if (goodbye !== null && session.life > 1) return this.#inStart(probe);
    if (goodbye?.reason === 'uncut') {
      this.diagnosis = uncut(goodbye);
      return { ...observeDeath(probe, ran, this.diagnosis, exit), uncut: true };
    }
    if (this.#mode === 'probe' && goodbye !== null) {
      this.undriveable = true;
      this.diagnosis = undriveable(goodbye, probe.steps);
      return observeDeath(probe, ran, this.diagnosis, exit);
    }
    const whole = exit.code === 0 && exit.ended_by === 'job' && session.exception === null && this.#mode !== 'probe';
    const refused = whole ? unheardRefusal(exit, this.target.kind, session.run.logFile) : null;
    if (refused !== null) {
      this.diagnosis = unheardDiagnosis(refused, exit);
      return observeDeath(probe, ran, this.diagnosis, exit);
    }
    if (whole) return this.#ofWhole(session, exit, probe, ran);
    // If the hook saw the exception, the exit of the launcher (a shell script goes on after an error) says nothing.
    const end = session.exception === null ? exit : { ...exit, code: 1, signal: null };
    const verdict = await diagnoseSession(session, end, this.target.kind, await this.target.memory.surroundings());
    if (await this.#isFreeAgain(verdict, exit, probe)) return this.measure(probe);
    if (mayBeOfFork(session, verdict) || this.#refusesWhatFitted(session, verdict, probe)) return this.#inStart(probe);
    // A second size may be the cause (an optimizer made for the first, say), so this is no verdict on the command.
    if (verdict.class === 'user_error' && this.#mode === 'measure' && this.#used > 1) {
      this.apart = verdict.evidence ?? verdict.class;
      return this.measure(probe);
    }
    this.undriveable = verdict.class === 'ok';
    this.diagnosis = verdict.class === 'ok' ? undriveable(null, probe.steps) : verdict;
    if (this.#mode === 'measure' && verdict.class === 'device_oom' && !probe.knob)
      this.diagnosis = neverReached(probe, session.loop?.own_batch, this.target.worldSize) ?? verdict;
    const trainedAlone = this.#mode === 'probe' && session.loop === null ? trainedAtItsOwn(verdict) : null;
    if (trainedAlone !== null && session.exception?.waited_for_loader && !this.#atCall)
      return this.#fromFirstCall(probe);
    this.diagnosis = trainedAlone ?? this.diagnosis;
    if (verdict.class === 'user_error' && (await this.#trainsAtItsOwn(probe))) {
      const { own_batch: own, place } = this.loop as Loop;
      if (place === 'loader' && !this.#setsVariables) return this.#withVariables(probe);
      this.diagnosis = usesOwnBatch(own as number, probe.micro_batch, verdict, place);
    }
    return observeDeath(probe, ran, this.diagnosis, exit);
  }

  #ofWhole({ xlaPool }: Session, exit: Exit, probe: Probe, ran: ProbeRun): Observation {
    const { bytes, most } = needOf(exit, xlaPool);
    if (most !== null && this.mostBytes === null) {
      this.mostBytes = most;
      this.#learned = true;
    }
    return observeWhole(probe, ran, bytes);
  }

  /** A new fork ran out of memory at a size that fitted before, so a start has to confirm that. */
  #refusesWhatFitted({ life }: Session, verdict: Diagnosis, { rung, micro_batch }: Probe): boolean {
    const fitted = micro_batch <= (this.#taken.get(rungName(rung)) ?? 0);
    return verdict.class === 'device_oom' && life > 1 && this.#used === 1 && fitted;
  }

  /** Repeats the probe in a start that does not wait for a loader to be asked: the script's own batch may be too large. */
  async #fromFirstCall(probe: Probe): Promise<Observation> {
    this.deps.log.info(
      { probe },
      'out of memory at a batch of its own: sizes are set from the first call of its model on',
    );
    this.#atCall = true;
    await this.close();
    return this.measure(probe);
  }

  /** Repeats the probe in a start in which the script's variables have the size that its loader's batches have. */
  async #withVariables(probe: Probe): Promise<Observation> {
    this.deps.log.info({ probe }, 'the script uses its batch size elsewhere too: its variables are set with it');
    this.#setsVariables = true;
    this.loop = null;
    return this.measure(probe);
  }

  /** Repeats the probe in a start, without further forks: the failure may be the fork's own. */
  async #inStart(probe: Probe): Promise<Observation> {
    this.deps.log.info({ probe }, 'a forked process failed: the same size is measured in a new start');
    this.#forks = false;
    await this.close();
    return this.measure(probe);
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

  /** Whether the script's own batch trains, where its first probe failed: then the size is the reason. */
  async #trainsAtItsOwn(probe: Probe): Promise<boolean> {
    const own = this.loop?.own_batch ?? null;
    const first = this.#mode === 'probe' && this.goal === 'search' && !this.#measured;
    if (!first || own === null || own === probe.micro_batch) return false;
    await this.#begin(probe, null);
    const trains = await this.#ask({ ...probe, micro_batch: own }, false);
    await this.close();
    return trains !== null;
  }

  async #ask(probe: Probe, carried: boolean): Promise<Measurement | null> {
    const session = this.#session as Session;
    if (this.#mode === 'none') {
      await session.ended();
      return null;
    }
    return session.ask({ ...probe, rung: this.target.hookRung(probe.rung) }, carried);
  }

  /** Learns the loop's own accumulation and autocast from its first measured step. */
  #learn(measurement: Measurement): void {
    const { own } = this.target;
    const accumulation = measurement.own_accumulation ?? 1;
    if (own.accumulation === null) {
      own.accumulation = accumulation;
      this.#learned ||= accumulation > 1;
    }
    if (this.request.options.microBatchTokens !== undefined) {
      const longest = Math.max(this.longestTokens ?? 0, measurement.longest_tokens ?? 0) || null;
      this.#learned ||= longest !== this.longestTokens;
      this.longestTokens = longest;
    }
    this.#learned ||= (measurement.own_amp ?? false) && !this.ownAmp;
    this.ownAmp ||= measurement.own_amp ?? false;
  }

  /** Begins a process: another life of the launch, or a new launch. */
  async #begin(probe: Probe, first: Probe | null = probe): Promise<void> {
    const expandable = probe.expandable_segments ?? false;
    const life = this.#forks ? await this.#renew(probe, expandable) : null;
    if (life === null) {
      await this.close();
      return this.#open(probe.rung, expandable, first);
    }
    this.#process(life, probe.rung, expandable);
    this.deps.progress({ type: 'life', launch: this.launches.length, life: life.life, why: probe.why });
    await life.ready();
    this.deps.log.debug({ life: this.#lives, seconds: life.startupSeconds }, 'a fork came to its training loop');
  }

  /** Null: the launch does not suit, or cannot be forked. */
  async #renew({ rung }: Probe, expandable: boolean): Promise<Session | null> {
    const started = this.#started;
    if (this.#session === null || this.loop === null || started === null) return null;
    if (!this.#reaches(started.rung, rung)) return null;
    if (started.expandable && !expandable) return null;
    return this.#session.renew(expandable && !started.expandable ? EXPANDABLE_SEGMENTS : {});
  }

  #process(session: Session, rung: Rung, expandable: boolean): void {
    this.#session = session;
    this.#lives += 1;
    this.#used = 0;
    this.#spent = false;
    this.#rung = rung;
    this.#expandable = expandable;
  }

  /** Starts a process on a rung; if the hook drives, waits for its training loop. */
  async #open(rung: Rung, expandable: boolean, probe: Probe | null): Promise<void> {
    this.#started = { rung, expandable };
    const owner = { request: this.request, deps: this.deps, target: this.target, launches: this.launches };
    const session = await launchSearch(owner, {
      mode: this.#mode,
      rung,
      expandable,
      forks: this.#forks,
      atCall: this.#atCall,
      setsVariables: this.#setsVariables,
      probe,
    });
    this.#process(session, rung, expandable);
    if (this.deps.signal.aborted) session.run.end('cancel');
    if (this.#mode !== 'probe') return;
    prepareDiagnosis();
    const loop = await session.ready();
    this.loop ??= loop;
    this.samples ??= loop?.samples ?? null;
  }

  /** A flag whose value is the size of the loader's batches can have no more than there are samples. */
  #boundByData(loop: Loop | null, asked: number): void {
    if (this.samples !== null || loop?.samples == null || loop.own_batch !== asked) return;
    if (asked === 1 && !loop.can.batch) return; // any loader may have batches of one
    this.samples = loop.samples;
    this.#learned = true;
  }

  /** Waits for the process to end, and ends it and ranks that wait for it if that takes too long. */
  async #deathOf(session: Session): Promise<Exit> {
    const leaves = this.#mode === 'probe' && session.goodbye !== null;
    if (leaves && session.exception === null && !session.isLife) session.run.end('cancel');
    const timer = setTimeout(() => (leaves || session.exception !== null) && session.run.end('cancel'), 10_000);
    try {
      return this.#whole(session, await session.ended());
    } finally {
      clearTimeout(timer);
    }
  }

  /** Throws if something is left, whose memory the next probe would be charged with. */
  #whole(session: Session, exit: Exit): Exit {
    if (exit.stuck !== undefined) throw new StillRunning(session.run, exit);
    return exit;
  }

  async close(): Promise<void> {
    const session = this.#session;
    this.#session = null;
    this.#started = null;
    if (session !== null) this.#whole(session, await session.close());
  }
}

/** Errors of forked processes. */
const OF_FORK = /\bfork|initialization error/i;

/** Whether a death may come of the fork: in a later life of all but memory, as the life before it trained. */
function mayBeOfFork({ isLife, life, exception }: Session, verdict: Diagnosis): boolean {
  if (['device_oom', 'host_oom', 'cancelled'].includes(verdict.class)) return false;
  return life > 1 || (isLife && OF_FORK.test(exception?.message ?? ''));
}
