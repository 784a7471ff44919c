import type { KnobAnswer } from '../../contract/knob.js';
import type { Recommendation } from '../../contract/recommendation.js';
import type { FindBatchReport } from '../../contract/reports.js';
import { type Config, configOf } from '../../contract/rung.js';
import type { Answer } from '../../tuner/types.js';
import { knobKey } from '../key.js';
import { findBatchReport, recommendationOf } from '../search/report.js';
import type { Target } from '../target.js';
import type { KnobWish, WorkDeps, WorkRequest } from '../types.js';
import { FIRST, type KnobOutcome, KnobSearch } from './knob-search.js';

/** Searches the largest value of a knob of the command's own. The record lies beside that of the batch. */
export async function searchedKnob(
  request: WorkRequest & { knob: KnobWish },
  deps: WorkDeps,
  target: Target,
  seconds: () => number,
): Promise<{ report: FindBatchReport; recommendation: Recommendation | null }> {
  const outcome = await new KnobSearch(request, deps, target, request.knob).run();
  const key = knobKey(target.key, request.knob.name);
  const { action } = outcome;
  if (action.type !== 'found') {
    const report = await findBatchReport(request, target, outcome, seconds());
    return {
      report: { ...report, key, notes: [...report.notes, ...smallestNote(request.knob, outcome)] },
      recommendation: null,
    };
  }
  const knob = answerOf(request.knob, outcome, action.answer);
  const config = ownConfig(target, outcome, action.answer, { name: knob.name, value: knob.value });
  const answer: Answer = {
    ...action.answer,
    config,
    max_micro_batch: config.micro_batch,
    known_bad_micro_batch: null,
    samples_per_s: speedAt(knob.value, config, outcome),
  };
  const found = { ...outcome, action: { type: 'found' as const, answer } };
  const report = await findBatchReport(request, target, found, seconds());
  const recommendation = recommendationOf(target, found, answer, new Date().toISOString());
  return {
    report: { ...report, key, knob, memory: null, notes: [...report.notes, ...endNote(knob)] },
    recommendation: { ...recommendation, key, knob, memory: null },
  };
}

function answerOf(wish: KnobWish, outcome: KnobOutcome, answer: Answer): KnobAnswer {
  const max = answer.max_micro_batch;
  const failing = answer.known_bad_micro_batch;
  const { crash } = outcome;
  const byScript = crash?.knob !== undefined && outcome.scriptEndsAt(max);
  const smallest = byScript ? (crash?.knob?.value ?? null) : failing;
  const shown = outcome.observations.findLast((one) => one.outcome !== 'fit' && one.knob?.value === smallest);
  return {
    name: wish.name,
    value: answer.config.micro_batch,
    max,
    smallest_failing: smallest,
    bounded_by: byScript ? 'script' : failing === null && max >= outcome.most ? 'options' : 'memory',
    evidence: shown?.evidence ?? null,
    multiple_of: outcome.multipleOf,
  };
}

/** The batch that the command ran with, at the value. */
function ownConfig(
  target: Target,
  { observations, loop }: KnobOutcome,
  { config }: Answer,
  knob: { name: string; value: number },
): Config {
  const ran = observations.find((one) => one.outcome === 'fit');
  const own = target.carrier('micro_batch') === 'hook' ? loop?.own_batch : null;
  return configOf(
    { ...config, knob },
    {
      micro_batch: own ?? ran?.micro_batch ?? 1,
      accumulation: target.own.accumulation ?? 1,
      world_size: target.worldSize,
    },
  );
}

/** Samples a second on all devices at the value, measured last. */
function speedAt(value: number, { effective_batch: samples }: Config, { observations }: KnobOutcome): number | null {
  const seconds = observations.findLast((one) => one.outcome === 'fit' && one.knob?.value === value)?.step_s ?? null;
  return seconds === null || seconds === 0 ? null : samples / seconds;
}

function endNote({ name, bounded_by, max, smallest_failing: failing, evidence }: KnobAnswer): string[] {
  if (bounded_by === 'options') return [`${name} ${max} is the largest that was to be tried: larger ones may fit.`];
  if (bounded_by !== 'script') return [];
  return [
    `The script itself ends at ${name} ${max}, not the memory: it fails with ${failing} (${evidence ?? 'no line says why'}).`,
  ];
}

/** Where the command failed with the smallest value, that value may be the cause. */
function smallestNote({ name, min }: KnobWish, { action }: KnobOutcome): string[] {
  if (action.type !== 'failed' || min !== null) return [];
  return [
    `It failed with every ${name} that was tried, ${FIRST} and the smallest: --knob-min N says with which one it runs, --knob-multiple-of N of what it has to be a multiple.`,
  ];
}
