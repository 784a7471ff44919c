import type { Diagnosis } from '../../contract/diagnosis.js';
import type { Observation } from '../../contract/measurement.js';
import type { Recommendation } from '../../contract/recommendation.js';
import type { Session } from '../launch/session.js';
import { recommendationOf } from '../search/report.js';
import { Search, type SearchOutcome } from '../search/search.js';
import type { Target } from '../target.js';
import type { WorkDeps, WorkRequest } from '../types.js';
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
import { verify } from './verification.js';

/** Chooses the configuration that a job runs with: a recorded one, else one that is searched for. */
export class Choices {
  /** Why the script took no batch from a search; null: it did, or none was made. */
  undriveable: Diagnosis | null = null;
  /** The command was started here to see what fits, and trained. */
  sawTraining = false;

  constructor(
    private readonly request: WorkRequest,
    private readonly deps: WorkDeps,
    private readonly launches: WorkRequest['launches'],
  ) {}

  /** The recorded configuration, else one found by a search. Null: it runs as it stands. A report: nothing is to be run. */
  async choose(target: Target, watch: () => boolean): Promise<Choice | SearchOutcome | null> {
    for (const text of target.notes) this.#note(text);
    const { options } = this.request;
    const recorded = await this.recorded(target);
    const own = recorded === null ? null : ownBatchOf(recorded, target);
    const known = recorded === null || own === null ? null : configFrom(recorded, target.needs(own), options);
    if (recorded !== null && own !== null && known !== null) return this.#reused(target, recorded, own, known);
    if (target.carrier('micro_batch') === 'none') {
      this.#note('Nothing in the command takes the micro-batch: it runs as it stands.');
      return null;
    }
    const mayFit = recorded === null || (own === null && fitsAsItStands(recorded, target.baseRung));
    if (mayFit && this.launches.length === 0 && watch()) return null;
    if (recorded?.status === 'demoted') target.knownBad = recorded.known_bad_micro_batch;
    await this.deps.persist({ state: 'searching', reason: null, key: target.key });
    const found = await this.measure(target, own === null ? recorded : null, this.request.journal);
    if (found === null)
      this.#note('No training step was seen in which the batch size could be set: it runs as it stands.');
    return found;
  }

  /** What is recorded of the command, which says where its batches have to be cut; null: nothing. */
  async recorded(target: Target): Promise<Recommendation | null> {
    const { recommendations } = await this.deps.records();
    const recorded = await recommendations.get(target.key);
    if (recorded?.cut === 'model') target.cutAtModel();
    return recorded;
  }

  /** `spare`: a job that has failed, whose spare may wait. The same by a probe of what was recorded for other flags, else by a search; null: the script takes no batch from us. */
  async measure(
    target: Target,
    recorded: Recommendation | null,
    seen: Observation[],
    spare: Session | null = null,
  ): Promise<Choice | SearchOutcome | null> {
    let journal = seen;
    const mayHold = recorded !== null && configFrom(recorded, target.needs(target.own), this.request.options) !== null;
    if (mayHold && !this.launches.some(({ purpose }) => purpose === 'search')) {
      const { recommendations } = await this.deps.records();
      const verified = await verify({ ...this.request, launches: this.launches }, this.deps, target, recorded, spare);
      this.#launched(verified.launches);
      this.sawTraining ||= verified.sawTraining;
      if (verified.choice !== null) {
        const commands = withCommand(recorded.commands ?? [], target, verified.own);
        const again = { ...recorded, verified_at: new Date().toISOString(), commands };
        await recommendations.put(again, this.request.jobId);
        return this.#reused(target, recorded, verified.own, verified.choice);
      }
      this.#note(`${recorded.key} was recorded for other flags and does not hold for these: it is searched anew.`);
      journal = [...journal, ...verified.journal];
    }
    return this.#search(target, journal, spare);
  }

  async #search(target: Target, journal: Observation[], spare: Session | null): Promise<Choice | SearchOutcome | null> {
    const { options } = this.request;
    const { recommendations } = await this.deps.records();
    const request = { ...this.request, launches: this.launches, journal };
    const outcome = await new Search(request, this.deps, target, 'keep', spare).run();
    this.#launched(outcome.allLaunches);
    this.sawTraining ||= outcome.loop !== null;
    if (outcome.undriveable) {
      this.undriveable = outcome.diagnosis;
      return null;
    }
    if (outcome.action.type !== 'found') return outcome;
    const { answer } = outcome.action;
    const beside = await target.memory.sharingNote();
    await recommendations.put(recommendationOf(target, outcome, answer, new Date().toISOString()), this.request.jobId);
    Object.assign(target.own, ownOf(target, outcome.loop));
    const notes = [...answer.notes, ...(beside === null ? [] : [beside])];
    if (target.own.microBatch === null && options.effectiveBatch === null)
      notes.push(noBatchOfItsOwn(answer.config.micro_batch, target.isCutByHook));
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
    this.launches.push(...all.slice(this.launches.length));
  }

  #note(text: string): void {
    this.deps.progress({ type: 'note', text: text.trim() });
  }
}
