import { type JobRecord, withNote } from '../contract/job.js';
import { IN_QUEUE } from '../contract/waiting.js';
import { isWrongType, type PatchResult, type Restored, retry, type Store, type StoredJob } from '../store/index.js';
import type { JobBackups } from './job-backups.js';

/** Another host took the job over, or it was put on hold or ended meanwhile. */
export class ClaimLost extends Error {}

interface Claim {
  store: Store;
  claimed: JobBackups;
  /** Backups of jobs that ended here. */
  ended: JobBackups;
  host: string;
  claim: string;
  /** Aborted when the daemon lets go of the job: what Redis refuses until then is left to the next daemon. */
  letGo: AbortSignal;
  /** Called when the claim is lost. */
  onLost: (error: ClaimLost) => void;
}

/** The record of a job that this host answers for; written only while its claim holds. */
export class ClaimedRecord {
  /** The reason shown last. */
  reason: string | null;
  lost = false;
  #notes: readonly string[];
  #unsaid = false;
  #saying = false;

  constructor(
    readonly job: StoredJob,
    private readonly claim: Claim,
  ) {
    this.reason = job.reason;
    this.#notes = job.notes ?? [];
  }

  /** Throws ClaimLost: nothing may be launched that the record does not show. */
  async patch(patch: Partial<JobRecord>): Promise<void> {
    if (patch.reason !== undefined) this.reason = patch.reason;
    const result = await this.write(patch);
    if (result === 'ok') return;
    this.lost = true;
    const error = new ClaimLost(result);
    this.claim.onLost(error);
    throw error;
  }

  /** Keeps a backup from now on. */
  hold(): void {
    const { host, claim, claimed } = this.claim;
    claimed.write({ host, claim, epoch: this.job.epoch, record: { ...this.job, reason: this.reason } });
  }

  /** Removes the backup with the job. */
  forget(): void {
    this.claim.claimed.remove(this.job.job);
  }

  /** Keeps the backup among the ended: an older state of Redis would offer the job again. */
  end(): void {
    const { host, claim, ended } = this.claim;
    const record = { ...this.job, ended_at: this.job.ended_at ?? new Date().toISOString() };
    ended.write({ host, claim, epoch: this.job.epoch, record });
    this.forget();
  }

  /** Whether the job already ended here in this epoch, and then restores that. Tries until Redis takes it. */
  async hasEnded(): Promise<boolean> {
    const { store, ended, letGo: signal } = this.claim;
    const last = ended.get(this.job.job);
    if (last === null || last.epoch < this.job.epoch) return false;
    await retry(() => store.jobs.restoreEnd(last), { signal, onRefused: store.connection.onRefused });
    return true;
  }

  /** Restores a record that Redis lost. Calls `onLost` if the job is another host's. */
  async restore(): Promise<Restored> {
    const { store, host, claim, onLost } = this.claim;
    const restored = await store.jobs.restore({ host, claim, epoch: this.job.epoch, record: this.job });
    if (restored !== 'kept' && restored !== 'restored') {
      this.lost = true;
      onLost(new ClaimLost(restored));
    }
    return restored;
  }

  /** Tries until Redis takes it, as an error says nothing about the job. Rejects when the job is let go. */
  write(patch: Partial<JobRecord>): Promise<PatchResult> {
    const { store, letGo: signal } = this.claim;
    return retry(() => this.#write(patch), { signal, onRefused: store.connection.onRefused });
  }

  /** If Redis lost the record, restores it and writes again: the job itself is not lost. */
  async #write(patch: Partial<JobRecord>): Promise<PatchResult> {
    const { store, claim } = this.claim;
    const { job } = this.job;
    const write = () => store.jobs.patch(job, patch, claim);
    let result = await write().catch((error: unknown) => {
      if (!isWrongType(error)) throw error;
      return 'missing' as const;
    });
    // `lost` as well: an older state of Redis does not know our claim
    const gone = result === 'missing' || result === 'lost';
    // `kept`: another step of ours has just restored it
    if (gone && ['restored', 'kept'].includes(await this.restore())) result = await write();
    if (result === 'ok') {
      Object.assign(this.job, patch);
      this.hold();
    }
    return result;
  }

  /** Shows the job's progress; of several quick ones only the last has to arrive. */
  say(reason: string | null): void {
    if (reason === this.reason) return;
    this.reason = reason;
    this.repeat();
  }

  /** Adds to its notes, as late as `say`. */
  note(text: string): void {
    const notes = withNote(this.#notes, text);
    if (notes === this.#notes) return;
    this.#notes = notes;
    this.repeat();
  }

  get #noted(): Partial<JobRecord> {
    return this.#notes.length === 0 ? {} : { notes: [...this.#notes] };
  }

  /** How the job ended, with what was noted last. */
  writeEnd(patch: Partial<JobRecord>): Promise<PatchResult> {
    return this.write({ ...patch, ...this.#noted });
  }

  /** Shows it again, after another daemon wrote that this host is silent. */
  repeat(): void {
    this.#unsaid = true;
    if (!this.#saying) void this.#sayLatest();
  }

  async #sayLatest(): Promise<void> {
    this.#saying = true;
    while (this.#unsaid) {
      this.#unsaid = false;
      await this.patch({ reason: this.reason, ...this.#noted }).catch(() => {}); // who has lost the claim is told of it
    }
    this.#saying = false;
  }

  /** Gives back a job without a launch. */
  async giveBack(): Promise<void> {
    const { store, claim } = this.claim;
    const { onRefused } = store.connection;
    await retry(() => store.jobs.unclaim(this.job.job, claim, this.reason ?? IN_QUEUE), { onRefused });
    this.forget();
  }
}
