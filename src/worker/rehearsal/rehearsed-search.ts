import type { Recommendation } from '../../contract/recommendation.js';
import type { FindBatchReport } from '../../contract/reports.js';
import type { Answer } from '../../tuner/types.js';
import type { Owner } from '../launch/launch.js';
import { ownOf } from '../run/reuse.js';
import { byHandNotes, findBatchReport, recommendationOf, round } from '../search/report.js';
import type { SearchOutcome } from '../search/search.js';
import { type RehearsalOutcome, rehearse } from './rehearsal.js';

/** The report and the record of what a search has found, after a rehearsal of the job with it. No record where that shows that the job would die. */
export async function rehearsedSearch(
  owner: Owner,
  outcome: SearchOutcome,
  answer: Answer,
  seconds: () => number,
): Promise<{ report: FindBatchReport; recommendation: Recommendation | null }> {
  const { request, target } = owner;
  const before = owner.launches.length;
  const rehearsed = await rehearsalOf(owner, outcome, answer);
  const { rehearsal, notes, failure } = rehearsed;
  const found: SearchOutcome = {
    ...outcome,
    action: { type: 'found', answer: withSmaller(answer, rehearsed, target.memory.roomBytes) },
    launches: outcome.launches + owner.launches.length - before,
    notes: [...outcome.notes, ...notes],
  };
  const report = {
    ...(await findBatchReport(request, target, found, seconds())),
    ...(rehearsal === null ? {} : { rehearsal }),
  };
  if (failure !== null) {
    const { fields, cause, evidence, advice, reason } = failure;
    const alone = `The training alone fits at micro-batch ${answer.config.micro_batch}.`;
    return {
      report: {
        ...report,
        status: 'exhausted',
        failure: {
          class: 'device_oom',
          evidence: evidence ?? cause,
          fields: { ...fields, cause },
          advice: `${cause} ${advice}`,
          reason: reason === 'save' ? 'save' : 'eval',
        },
        config: null,
        max_micro_batch: null,
        peak_bytes: null,
        headroom_pct: null,
        samples_per_s: null,
        verified_steps: null,
        apply: null,
        memory: null,
        notes: [...report.notes, alone],
      },
      recommendation: null,
    };
  }
  const { action } = found as { action: { answer: Answer } };
  const recommendation = recommendationOf(target, found, action.answer, new Date().toISOString());
  return { report, recommendation: { ...recommendation, ...(rehearsal === null ? {} : { rehearsal }) } };
}

async function rehearsalOf(owner: Owner, outcome: SearchOutcome, { config }: Answer): Promise<RehearsalOutcome> {
  const { target } = owner;
  if (outcome.loop === null && !outcome.observations.some((one) => one.step_s !== null)) {
    const note = 'Nothing is rehearsed: no training step of the command was seen, so that it could not be cut short.';
    return { config, rehearsal: null, notes: [note], failure: null };
  }
  const byHand = byHandNotes(config, target, outcome).length > 0;
  Object.assign(target.own, ownOf(target, outcome.loop));
  if (!byHand) return rehearse(owner, config);
  if ((target.own.microBatch ?? 1) > config.micro_batch) {
    const note = 'Nothing is rehearsed: its own setting makes its batches, and with its own one it does not fit.';
    return { config, rehearsal: null, notes: [note], failure: null };
  }
  // Only its own setting makes other batches than its own.
  return { ...(await rehearse(owner, null)), config };
}

/** The answer at the size that was rehearsed last, as that is proof enough of it. */
function withSmaller(answer: Answer, { config, rehearsal }: RehearsalOutcome, room: number): Answer {
  if (config === null || config.micro_batch === answer.config.micro_batch || rehearsal === null) return answer;
  const peak = rehearsal.phases.find(({ phase }) => phase === 'train')?.peak_bytes ?? null;
  return {
    ...answer,
    config,
    peak_bytes: peak,
    headroom_pct: peak === null ? null : round((1 - peak / room) * 100, 1),
    samples_per_s: null,
    verified_steps: rehearsal.steps,
  };
}
