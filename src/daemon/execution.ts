import { setTimeout as delay } from 'node:timers/promises';
import type { Job } from 'bullmq';
import { OomtuneError } from '../common/errors.js';
import type { Log } from '../common/log.js';
import { isFull, replyInWords } from '../common/refusal.js';
import type { JobRecord } from '../contract/job.js';
import type { Exit } from '../contract/launch.js';
import type { RunReport } from '../contract/reports.js';
import type { Ticket } from '../contract/state.js';
import type { Reply, Standing, Store, StoredJob } from '../store/index.js';
import { Detached } from '../worker/launch/detached.js';
import { StillRunning } from '../worker/launch/still-running.js';
import { TimeUp } from '../worker/run/time-limit.js';
import type { WorkRequest } from '../worker/types.js';
import { ClaimedRecord, ClaimLost } from './claimed-record.js';
import { type HandedDeps, type Hands, HandsLost } from './hands.js';
import type { JobBackups } from './job-backups.js';
import { LastLaunch } from './last-launch.js';
import type { LaunchEnvironment } from './launch-environment.js';
import { LeaseWait, PutBack } from './lease-wait.js';
import { endedWell, failureOf, outcomeOf, plainOutcome } from './outcome.js';
import { Pace } from './sharing/pace.js';
import { Standstill } from './standstill.js';
import { WorkRecord } from './work-record.js';

export interface ExecutionDeps {
  store: Store;
  hands: Hands;
  host: string;
  claimed: JobBackups;
  ended: JobBackups;
  claim: string;
  log: Log;
  /** Called when it begins to wait for devices and gives its lane to others. */
  onWait: () => void;
}

/** How the daemon's work on a job ended. `back`: not started, queue it again. `left`: it runs on without us. */
export type ExecutionEnd = 'done' | 'back' | 'left';

const NO_ROOM = "waits for room on the disk of oomtune's home";
const ROOM_LOOK_MS = 2000;
/** For others to come, where who worked on the job is gone. */
const HANDS_LOOK_MS = 2000;

class Cancelled extends Error {}

/** A job that this daemon answers for, from claim to end. */
export class Execution {
  readonly leaseWait: LeaseWait;

  readonly #abort = new AbortController();
  readonly #letGo = new AbortController();
  readonly #log: Log;
  readonly #claimed: ClaimedRecord;
  readonly #last: LastLaunch;
  readonly #environment: LaunchEnvironment;
  readonly #work: WorkRecord;
  /** How fast it trains. */
  readonly pace = new Pace();
  readonly #standstill: Standstill;
  #closing = false;
  #ended: Promise<ExecutionEnd> = Promise.resolve('left');

  constructor(
    readonly record: StoredJob,
    /** Its queue entry; null: gone, which does not matter to the job. */
    public ticket: Job<Ticket> | null,
    private readonly deps: ExecutionDeps,
  ) {
    this.#log = deps.log.child({ job: record.job });
    this.#claimed = new ClaimedRecord(record, {
      ...deps,
      letGo: this.#letGo.signal,
      onLost: (error) => this.#stop(error),
    });
    this.#environment = deps.hands.environmentOf(record);
    this.leaseWait = new LeaseWait({
      ...deps,
      record,
      ticket: () => this.ticket,
      onRefused: (error) => {
        this.#claimed.say(`waits for Redis, which answers with an error: ${replyInWords(error.message)}`);
        deps.store.connection.onRefused(error);
      },
    });
    this.#last = new LastLaunch(record, deps.hands, deps.store.leasing);
    this.#standstill = new Standstill(record, this.#claimed, this.#last, this.#log);
    this.#work = new WorkRecord(this.#claimed, deps.store, this.#log, deps.hands);
    if (record.cancelAsked !== null) this.cancel();
  }

  cancel(): void {
    this.#stop(new Cancelled('The job was cancelled.'));
  }

  /** Lets go of the job, which goes on under its supervisor. */
  detach(): void {
    const putBack = this.leaseWait.since !== null && !this.#work.launched;
    this.#stop(putBack ? new PutBack() : new Detached());
    this.#letGo.abort(new Detached());
  }

  /** Gives it back to its queue. False: something of it has started. */
  putBack(): boolean {
    if (this.leaseWait.since === null || this.#work.launched) return false;
    this.#stop(new PutBack('It goes back to its queue.'));
    return true;
  }

  /** Shows its state again, after another daemon wrote that this host is silent. */
  repeat(): void {
    this.#claimed.repeat();
  }

  /** If another host took the job, resolves when nothing of it is left here; else at once. */
  get fenced(): Promise<void> {
    return this.#abort.signal.reason instanceof ClaimLost ? this.#ended.then(() => {}) : Promise.resolve();
  }

  /** What the record should say while the job is ours; null: it ends, and is compared no more. */
  get expected(): Pick<Standing, 'epoch' | 'claim' | 'launches'> | null {
    if (this.#closing || this.#abort.signal.aborted) return null;
    return { epoch: this.record.epoch, claim: this.deps.claim, launches: this.record.launches.length };
  }

  /** Compares its copy with the record: obeys a cancel, restores what Redis lost, and ends a copy that another host took over. */
  async compare(expected: Pick<Standing, 'epoch' | 'claim' | 'launches'>, read: Reply<Standing>): Promise<void> {
    if (read.is === 'error' || this.expected === null) return;
    if (read.is === 'value') {
      const { cancelAsked, epoch, claim, launches, pause } = read.value;
      if (cancelAsked) return this.cancel();
      if (pause !== null) await this.#standstill.setPause(pause);
      if (epoch === expected.epoch && claim === expected.claim && launches >= expected.launches) return;
    }
    const restored = await this.#claimed.restore();
    if (restored === 'restored') this.#log.warn('Redis had lost the job: its record is written back');
    else if (restored !== 'kept')
      this.#log.warn({ why: restored }, "the job is another host's by now: its copy here is ended");
  }

  /** Whether its user paused it. */
  get pauseAsked(): boolean {
    return this.#standstill.asked;
  }

  /** Has it stand still, for this reason, beside what its user asks for; null: it may run. */
  async takeTurn(reason: string | null): Promise<void> {
    if (this.expected !== null) await this.#standstill.takeTurn(reason);
  }

  /** Records something of it; what Redis refuses is not tried again. */
  async note(patch: Partial<JobRecord>): Promise<void> {
    if (this.expected !== null) await this.#claimed.patch(patch);
  }

  /** The first reason holds. */
  #stop(reason: Error): void {
    if (!this.#abort.signal.aborted) this.#abort.abort(reason);
  }

  /** Never rejects. */
  run(): Promise<ExecutionEnd> {
    this.#ended = this.#run();
    return this.#ended;
  }

  async #run(): Promise<ExecutionEnd> {
    try {
      if (await this.#claimed.hasEnded()) {
        this.#log.warn('Redis stood as before the end of the job: how it ended is written back');
        return 'done';
      }
      this.#claimed.hold();
      this.#log.info({ adopted: this.#work.launched }, 'job taken');
      await this.#withHands(() => this.#prepare());
      await this.#sayWithheld();
      const report = await this.#runWorker();
      if (report.still_running !== undefined) this.#sayStuck(report.still_running);
      await this.#work.close();
      return await this.#close(this.#environment.blame(outcomeOf(report)));
    } catch (error) {
      await this.#work.close();
      return this.#afterError(error).catch((second: unknown) => {
        if (second instanceof Detached) return 'left' as const;
        this.#log.error({ err: second }, 'the end of the job could not be recorded');
        return 'left' as const;
      });
    }
  }

  async #prepare(): Promise<void> {
    if (!this.#work.launched) await this.deps.hands.dropEarlierTries(this.record);
    await this.#environment.prepare(); // what stays behind is known from here on
  }

  /** All that hands do to a job passes here: where they are lost the next ones do it anew, as that is not the job's fault. */
  async #withHands<T>(task: () => Promise<T>, signal = this.#abort.signal): Promise<T> {
    for (;;) {
      try {
        return await task();
      } catch (error) {
        if (!(error instanceof HandsLost) || !error.again || signal.aborted) throw error;
        this.#log.warn({ err: error }, 'who worked on the job is gone: it is taken up again');
        await delay(HANDS_LOOK_MS, undefined, { signal }).catch(() => {});
      }
    }
  }

  /** Waits for disk space for a launch, as its lack is not the job's fault. */
  async #runWorker(): Promise<RunReport> {
    const { signal } = this.#abort;
    for (;;) {
      try {
        return await this.#withHands(async () => {
          await this.#last.endStray();
          return this.deps.hands.runJob(this.#request(), this.#workDeps());
        });
      } catch (error) {
        if (!isFull(error) || signal.aborted) throw error;
        if (this.#claimed.reason !== NO_ROOM)
          this.#log.warn({ err: error }, 'the disk is full: the job waits for room');
        this.#claimed.say(NO_ROOM);
        await delay(ROOM_LOOK_MS, undefined, { signal }).catch(() => {
          throw error;
        });
      }
    }
  }

  async #afterError(error: unknown): Promise<ExecutionEnd> {
    const { signal } = this.#abort;
    const reason: unknown = signal.aborted ? signal.reason : error;
    if (reason instanceof Detached) return 'left';
    if (!signal.aborted && this.#work.launched && !(error instanceof TimeUp)) {
      // A living run is not ended because we no longer understand it: its script was moved, its interpreter is gone
      const exit = await this.#withHands(() =>
        this.#last.waitForEnd(signal, () =>
          this.#log.warn({ err: error }, 'the run goes on, though it could not be prepared again'),
        ),
      );
      if (exit?.stuck !== undefined) this.#sayStuck(exit.error);
      if (exit !== null) return this.#close(plainOutcome(exit));
    }
    const last = error instanceof StillRunning ? error.exit : reason instanceof PutBack ? null : await this.#endLast();
    const stuck = last?.stuck === undefined ? null : last.error;
    if (stuck !== null) this.#sayStuck(stuck);
    if (this.#claimed.lost || reason instanceof ClaimLost) {
      this.#log.warn('the job was taken from this host, or ended behind its back');
      this.#claimed.forget();
      return 'done';
    }
    this.#closing = true;
    if (reason instanceof PutBack) {
      await this.#claimed.giveBack();
      return 'back';
    }
    if (reason instanceof Cancelled) {
      const ended = last !== null && this.#last.isRun && endedWell(last);
      return this.#close(ended ? plainOutcome(last) : { state: 'cancelled', reason: stuck });
    }
    if (!(error instanceof OomtuneError)) this.#log.error({ err: error }, 'a job met a fault of ours');
    return this.#close(failureOf(error));
  }

  /** A job that is to end does so whatever becomes of the hands, unless this daemon lets go of it. */
  #endLast(): Promise<Exit | null> {
    return this.#withHands(() => this.#last.end(), this.#letGo.signal);
  }

  #sayStuck(why: string | null): void {
    this.#log.warn({ why }, 'a process of the job cannot be ended: its lease stays until it is gone');
  }

  async #close(patch: Partial<JobRecord>): Promise<ExecutionEnd> {
    this.#closing = true;
    const result = await this.#claimed.writeEnd(patch);
    if (result === 'ok') this.#claimed.end();
    else this.#claimed.forget();
    if (!this.record.options.notify) this.#environment.forget(); // else who tells of the end does it
    this.#log.info({ state: patch.state, recorded: result }, 'job ended');
    if (patch.state === 'succeeded')
      await this.deps.store.durations
        .note(this.record)
        .catch((err: unknown) => this.#log.warn({ err }, 'how long the job took is not noted'));
    return 'done';
  }

  #request(): WorkRequest {
    const { record } = this;
    return {
      jobId: record.job,
      command: record.command,
      options: record.options,
      purpose: 'submit',
      journal: record.journal,
      launches: record.launches,
      epoch: record.epoch,
      foreground: false,
      startedAt: record.started_at,
      environment: this.#environment.environment(),
    };
  }

  /** Recorded before the launch, for people who look for a missing variable. */
  async #sayWithheld(): Promise<void> {
    const { withheld, note } = this.#environment;
    if (note === null) return;
    this.#log.info({ withheld }, note);
    if (this.record.environment) await this.#claimed.patch({ environment: { ...this.record.environment, withheld } });
  }

  #workDeps(): HandedDeps {
    return {
      records: async () => ({
        recommendations: this.#work.recommendations(this.#abort.signal),
        leasing: this.leaseWait,
      }),
      signal: this.#abort.signal,
      progress: (event) => {
        if (event.type === 'step') this.pace.add(event.step, Date.now());
        else this.#work.show(event);
      },
      persist: (patch) => this.#work.persist(patch),
      log: this.#log,
    };
  }
}
