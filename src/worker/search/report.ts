import type { FailureClass } from '../../contract/failure.js';
import { asRecord, type ProbeRecord, type SpeedComparison } from '../../contract/measurement.js';
import type { Recommendation } from '../../contract/recommendation.js';
import type { FindBatchReport } from '../../contract/reports.js';
import { type Config, rungOf, shown } from '../../contract/rung.js';
import { breakdownOf } from '../../tuner/index.js';
import type { Answer } from '../../tuner/types.js';
import { appliedFolder } from '../key.js';
import { memoryReport } from '../memory/memory-report.js';
import { ownOf, withCommand } from '../run/reuse.js';
import type { Target } from '../target.js';
import type { WorkRequest } from '../types.js';
import { exhaustedDiagnosis } from './exhausted.js';
import type { SearchOutcome, Seen } from './search.js';

/** The document of `find-batch --json`. */
export async function findBatchReport(
  request: WorkRequest,
  target: Target,
  outcome: SearchOutcome,
  wallSeconds: number,
): Promise<FindBatchReport> {
  const { action } = outcome;
  const device = target.devices[0] as Target['devices'][number];
  const answer = action.type === 'found' ? action.answer : null;
  const config = answer === null ? null : answer.config;
  const beside = answer === null ? null : await target.memory.sharingNote();
  return {
    schema: 1,
    key: target.key,
    name: target.name,
    status: action.type,
    ...(action.type === 'found' ? {} : { failure: failureOf(outcome, request.options) }),
    device: {
      id: device.id,
      model: device.model,
      total_bytes: device.total_bytes,
      budget_bytes: target.budgetBytes,
      ...(target.memory.roomBytes < target.budgetBytes ? { room_bytes: target.memory.roomBytes } : {}),
    },
    config: config && shown(config),
    own: ownBatchReport(target, outcome),
    max_micro_batch: answer?.max_micro_batch ?? null,
    peak_bytes: answer?.peak_bytes ?? null,
    headroom_pct: answer?.headroom_pct ?? null,
    samples_per_s: answer?.samples_per_s ?? null,
    verified_steps: answer?.verified_steps ?? null,
    ...comparedIn(answer),
    launches: outcome.launches,
    startup_s: outcome.startupSeconds === null ? null : round(outcome.startupSeconds, 2),
    wall_s: round(wallSeconds, 2),
    probes: probesOf(outcome),
    apply: config === null ? null : await howToApply(request, target, config, outcome),
    memory: config === null ? null : memoryReport(outcome.observations, config, target.budgetBytes),
    notes: [
      ...target.notes,
      ...target.memory.neighbourNotes,
      ...outcome.notes,
      ...(answer?.notes ?? []),
      ...(answer === null ? [] : dataIsTheLimit(answer.max_micro_batch, outcome, request.options, target.worldSize)),
      ...(config === null ? [] : byHandNotes(config, target, outcome)),
      ...(beside === null ? [] : [beside]),
      ...(action.type === 'exhausted' && action.evidence !== null ? [action.why] : []),
    ],
  };
}

async function howToApply(
  request: WorkRequest,
  target: Target,
  config: Config,
  outcome: SearchOutcome,
): Promise<NonNullable<FindBatchReport['apply']>> {
  const { argv, knobEnv } = await target.fill(config, appliedFolder(target.key), 1);
  const own = ownBatchReport(target, outcome);
  const keeps = own !== null && request.options.effectiveBatch === null;
  const makes = byHandNotes(config, target, outcome).length === 0;
  return {
    argv,
    env: knobEnv,
    oomtune: runWords(request, target.name, makes ? config : null),
    ...(keeps ? { own: runWords(request, target.name, null) } : {}),
  };
}

function failureOf(outcome: SearchOutcome, options: WorkRequest['options']): NonNullable<FindBatchReport['failure']> {
  const { action, diagnosis } = outcome;
  if (action.type === 'exhausted') {
    const { class: kind, fields, advice, reason } = exhaustedDiagnosis(diagnosis, action, options, outcome);
    return {
      class: kind as FailureClass,
      evidence: action.evidence ?? action.why,
      fields,
      advice,
      ...(reason === 'leak' ? { reason } : {}),
    };
  }
  const { failure, evidence } = action as Extract<typeof action, { type: 'failed' }>;
  const { fields = {}, advice, cause } = diagnosis ?? {};
  return { class: failure, evidence, fields, advice, cause };
}

/** The recommendation of a found answer. `now`: ISO 8601. */
export function recommendationOf(target: Target, outcome: Seen, answer: Answer, now: string): Recommendation {
  const { config } = answer;
  const own = ownOf(target, outcome.loop);
  return {
    schema: 1,
    key: target.key,
    name: target.name,
    gpu_model: target.devices[0]?.model ?? 'unknown',
    budget_bytes: target.budgetBytes,
    world_size: config.world_size,
    micro_batch: config.micro_batch,
    accumulation: config.accumulation,
    effective_batch: config.effective_batch,
    ...(config.micro_batch_tokens === undefined ? {} : { micro_batch_tokens: config.micro_batch_tokens }),
    ...rungOf(config),
    max_micro_batch: answer.max_micro_batch,
    known_bad_micro_batch: answer.known_bad_micro_batch,
    peak_bytes: answer.peak_bytes,
    samples_per_s: answer.samples_per_s,
    verified_at: now,
    status: 'verified',
    command_digest: target.digest,
    torch: outcome.torch ?? target.torch,
    driver: target.devices[0]?.driver ?? null,
    own_batch: own.microBatch,
    own_accumulation: own.accumulation,
    commands: withCommand([], target, own),
    cut: config.accumulation > 1 ? (outcome.cut?.cut ?? null) : null,
    ...(config.expandable_segments ? { expandable_segments: true } : {}),
    memory: breakdownOf(outcome.observations, config, target.budgetBytes),
    ...comparedIn(answer),
    probes: probesOf(outcome),
  };
}

function comparedIn(answer: Answer | null): { comparison?: SpeedComparison } {
  const { together = false, speeds = [] } = answer?.comparison ?? {};
  if (speeds.length === 0) return {};
  const rows = speeds.map(({ rung, micro_batch: microBatch, samples_per_s: samplesPerSecond, spread, rounds }) => ({
    ...shown(rung),
    micro_batch: microBatch,
    samples_per_s: round(samplesPerSecond, 3),
    spread: spread === null ? null : round(spread, 3),
    rounds,
  }));
  return { comparison: { together, speeds: rows } };
}

function probesOf({ observations, whys }: Seen): ProbeRecord[] {
  return observations.map((observation, index) => asRecord(observation, whys[index] ?? undefined));
}

export const round = (value: number, digits: number): number => Number(value.toFixed(digits));

/** The command's own batch; null: it has none (a placeholder), or none was seen. */
function ownBatchReport(target: Target, { loop }: SearchOutcome): FindBatchReport['own'] {
  const size = target.own.microBatch ?? loop?.own_batch ?? null;
  if (size === null) return null;
  const accumulation = target.own.accumulation ?? 1;
  return {
    micro_batch: size,
    accumulation,
    effective_batch: size * accumulation * target.worldSize,
    samples: loop?.samples ?? null,
  };
}

/** The command that runs at `config`'s effective batch, or else at the command's own. */
function runWords({ command, options }: WorkRequest, name: string, config: Config | null): string[] {
  const words = ['oomtune', 'run', '--name', name];
  if (config !== null) words.push('--effective-batch', String(config.effective_batch));
  if (options.device !== null) words.push('--device', options.device);
  if (options.budget !== null) words.push('--budget', options.budget);
  if (options.gpus > 1) words.push('--gpus', String(options.gpus));
  return [...words, '--', ...command];
}

/** If all samples fit at once, the data set ends the search, not the memory. */
function dataIsTheLimit(
  max: number,
  { samples }: SearchOutcome,
  { maxBatch }: WorkRequest['options'],
  ranks: number,
): string[] {
  if (samples === null || max < samples) return [];
  if (maxBatch !== null && maxBatch <= samples) return [];
  const all = ranks > 1 ? `All ${samples} samples that each of ${ranks} ranks has` : `All ${samples} samples`;
  return [`${all} of the data set fit at once: the data set is the limit here, not the memory.`];
}

/** Other batches than the script's own are made by its own setting only: without a DataLoader, or where its variables have to have their size, too. */
export function byHandNotes(config: Config, target: Target, { loop }: SearchOutcome): string[] {
  if (!loop || loop.place === 'loader' || target.carrier('micro_batch') !== 'hook') return [];
  const own = (loop.own_batch ?? 0) * (target.own.accumulation ?? 1) * target.worldSize;
  if (config.effective_batch === own) return [];
  const how =
    loop.place === 'call'
      ? 'The script makes its batches without a DataLoader: sizes were set where it calls its model.'
      : 'The script uses its batch size elsewhere than in its DataLoader, too: its variables that hold it were set with it.';
  const repeated =
    loop.place === 'call' && config.micro_batch > (loop.own_batch ?? 0)
      ? ' Samples were repeated where it made fewer than that, as it does where its data have no more.'
      : '';
  return [
    `${how} run trains on its own batches of ${loop.own_batch}, cut where they do not fit; batches of ${config.micro_batch} are made by the script's own setting.${repeated}`,
  ];
}
