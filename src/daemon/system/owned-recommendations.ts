import type { Recommendation } from '../../contract/recommendation.js';
import type { WorkRecommendations } from '../../worker/types.js';

/** Recommendations are read by all. One that holds is replaced only by who measured it, so that nobody can spoil another's. */
export class OwnedRecommendations {
  constructor(private readonly store: WorkRecommendations) {}

  /** Whose the record is that was kept instead; null: it was written. */
  async put(by: { uid: number; name: string }, found: Recommendation, job: string | null): Promise<string | null> {
    const before = await this.store.get(found.key);
    const holds = before !== null && before.status === 'verified' && before.uid !== by.uid;
    if (holds) return before.owner ?? 'another user';
    await this.store.put({ ...found, owner: by.name, uid: by.uid }, job);
    return null;
  }

  /** Another's stays as it is: that it did not hold for this job says nothing of his. */
  async demote(by: { uid: number }, key: string, knownBad: number, job: string | null): Promise<void> {
    const before = await this.store.get(key);
    if (before?.uid === by.uid) await this.store.demote(key, knownBad, job);
  }
}
