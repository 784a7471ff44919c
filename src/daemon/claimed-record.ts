import { outlast, type PatchResult, type Store, type StoredJob } from '../store/index.js';
import type { JobRecord } from '../store/types.js';

/** The job was taken from us: another host answers for it, or it was held or ended behind our back. */
export class ClaimLost extends Error {}

export interface Claim {
  store: Store;
  host: string;
  /** Patches without it are refused. */
  claim: string;
  /** Aborted when the daemon lets go of the job: what Redis will not take until then is left to the next daemon. */
  letGo: AbortSignal;
  /** Told when it holds no more. */
  onLost: (error: ClaimLost) => void;
}

/** The record of a job that this host answers for: each step is written only while the claim on it holds. */
export class ClaimedRecord {
  readonly job: StoredJob;
  /** Where the job stands, as it was said last. */
  reason: string | null;
  /** The claim is gone. */
  lost = false;
  readonly #claim: Claim;
  #unsaid = false;
  #saying = false;

  constructor(job: StoredJob, claim: Claim) {
    this.job = job;
    this.reason = job.reason;
    this.#claim = claim;
  }

  /** Throws ClaimLost: nothing may be launched that the record does not know of. */
  async patch(patch: Partial<JobRecord>): Promise<void> {
    if (patch.reason !== undefined) this.reason = patch.reason;
    const result = await this.write(patch);
    if (result === 'ok') return;
    this.lost = true;
    const error = new ClaimLost(result);
    this.#claim.onLost(error);
    throw error;
  }

  /** Tries until Redis takes it: an error says nothing about the job. Rejects when the job is let go of. */
  write(patch: Partial<JobRecord>): Promise<PatchResult> {
    const { store, letGo: signal } = this.#claim;
    return outlast(() => this.#write(patch), { signal, onRefused: store.connection.onRefused });
  }

  /** Where Redis lost its data the job has not lost its process: the record is written anew. */
  async #write(patch: Partial<JobRecord>): Promise<PatchResult> {
    const { store, host, claim } = this.#claim;
    const { job } = this.job;
    const result = await store.jobs.patch(job, patch, claim);
    if (result === 'missing') {
      await store.jobs.create(this.job);
      await store.jobs.claim({ job, epoch: 1 }, host, claim);
      return store.jobs.patch(job, patch, claim);
    }
    if (result === 'ok') Object.assign(this.job, patch);
    return result;
  }

  /** Says where the job stands; of several that come quickly only the last has to arrive. */
  say(reason: string | null): void {
    if (reason === this.reason) return;
    this.reason = reason;
    this.repeat();
  }

  /** Says it again, after somebody else wrote that this host could not be heard. */
  repeat(): void {
    this.#unsaid = true;
    if (!this.#saying) void this.#sayLatest();
  }

  async #sayLatest(): Promise<void> {
    this.#saying = true;
    while (this.#unsaid) {
      this.#unsaid = false;
      await this.patch({ reason: this.reason }).catch(() => {}); // who has lost the claim is told of it
    }
    this.#saying = false;
  }

  /** Gives the job back, of which nothing was launched. */
  async giveBack(): Promise<void> {
    const { store, claim } = this.#claim;
    const { onRefused } = store.connection;
    await outlast(() => store.jobs.unclaim(this.job.job, claim, this.reason ?? 'waits in its queue'), { onRefused });
  }
}
