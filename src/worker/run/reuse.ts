import type { Loop } from '../../contract/hook.js';
import type { JobOptions } from '../../contract/options.js';
import type { Recommendation, VerifiedCommand } from '../../contract/recommendation.js';
import {
  ALLOWANCES,
  type Allowance,
  type AllowedKnob,
  type Config,
  configOf,
  type Rung,
  rungOf,
  sameRung,
} from '../../contract/rung.js';
import { largestDivisor, longestWithin } from '../../tuner/index.js';
import type { Carrier, Knob } from '../command/index.js';

/** The command's own batch; null: unknown. */
export interface OwnBatch {
  microBatch: number | null;
  accumulation: number | null;
  /** Samples of its data set. */
  samples?: number | null;
}

/** A configuration to run, with notes for the user. */
export interface Choice {
  config: Config;
  notes: string[];
}

type Wishes = Pick<
  JobOptions,
  | 'effectiveBatch'
  | 'minBatch'
  | 'maxBatch'
  | 'amp'
  | 'checkpointing'
  | 'chunkedLoss'
  | 'allow'
  | 'exact'
  | 'accumulation'
  | 'microBatchTokens'
>;

/** A job that looks for a recorded configuration. */
export interface JobNeeds {
  budgetBytes: number;
  /** What other programs leave of the budget; absent: all of it. */
  roomBytes?: number;
  worldSize: number;
  baseRung: Rung;
  own: OwnBatch;
  /** The hook sets micro-batches, and the loop has its own batches, of whatever size. */
  isCutByHook?: boolean;
  /** Segments are expandable, or may be made so. */
  expandable?: boolean;
}

/**
 * The configuration that a recommendation gives this job; null: none (demoted, another rung, a smaller budget). The effective
 * batch is what was asked for, else the command's own, else the recommended micro-batch.
 */
export function configFrom(recommendation: Recommendation, job: JobNeeds, options: Wishes): Choice | null {
  const { baseRung, worldSize } = job;
  if (recommendation.status !== 'verified') return null;
  if (recommendation.budget_bytes > job.budgetBytes || recommendation.world_size !== worldSize) return null;
  // Others now hold memory that was free when it was measured, so it is measured again within the rest.
  if ((recommendation.peak_bytes ?? 0) > (job.roomBytes ?? job.budgetBytes)) return null;
  if (options.amp !== 'auto' && options.amp !== recommendation.amp) return null;
  if (options.checkpointing !== 'auto' && (options.checkpointing === 'on') !== recommendation.checkpointing)
    return null;
  if (options.chunkedLoss === 'off' && recommendation.chunked_loss) return null;
  if (!allows(options, recommendation)) return null;
  // A size measured with expandable segments may need them.
  if (recommendation.expandable_segments && job.expandable === false) return null;
  const { micro_batch_tokens: tokens } = recommendation;
  if (options.microBatchTokens !== undefined && tokens === undefined) return null;
  if (options.exact && recommendation.amp !== baseRung.amp) return null;

  const { microBatch } = job.own;
  const accumulation = job.own.accumulation ?? recommendation.own_accumulation ?? 1;
  const ownEffective = microBatch === null ? null : microBatch * accumulation * worldSize;
  const longest = tokens === undefined ? null : tokens / recommendation.micro_batch;
  const within = longestWithin(options.microBatchTokens, longest);
  const most = Math.min(recommendation.micro_batch, options.maxBatch ?? Number.POSITIVE_INFINITY, within);
  const effective = options.effectiveBatch ?? ownEffective ?? most * worldSize;
  const knobs = { ...rungOf(recommendation), expandable_segments: recommendation.expandable_segments };
  const asItStands = sameRung(knobs, baseRung);
  const allowed = (size: number): boolean =>
    size >= options.minBatch && size <= Math.min(options.maxBatch ?? size, within);
  if (
    asItStands &&
    microBatch !== null &&
    effective === ownEffective &&
    microBatch <= recommendation.max_micro_batch &&
    allowed(microBatch)
  ) {
    const config = configOf(knobs, { micro_batch: microBatch, accumulation, world_size: worldSize });
    return { config, notes: recommendation.micro_batch > microBatch ? [asAsked(config, recommendation)] : [] };
  }
  const notes: string[] = [];
  const perDevice = Math.max(1, Math.round(effective / worldSize));
  if (perDevice * worldSize !== effective) {
    notes.push(
      `An effective batch of ${effective} cannot be shared by ${worldSize} devices; ${perDevice * worldSize} is used.`,
    );
  }
  const largest = largestDivisor(perDevice, most);
  if ((options.accumulation === 'off' && largest !== perDevice) || !allowed(largest)) return null;
  if (ownEffective === null && options.effectiveBatch === null) notes.push(noBatchOfItsOwn(largest, job.isCutByHook));
  return {
    config: configOf(knobs, {
      micro_batch: largest,
      accumulation: perDevice / largest,
      world_size: worldSize,
      ...(longest === null ? {} : { micro_batch_tokens: largest * longest }),
    }),
    notes,
  };
}

/** Whether each knob that has to be allowed is. */
function allows({ allow = [] }: Wishes, recommendation: Recommendation): boolean {
  const names = Object.entries(ALLOWANCES) as [Allowance, AllowedKnob][];
  return names.every(([name, knob]) => !recommendation[knob] || allow.includes(name));
}

/** Whether the command that it was recorded for fits as it stands: others of its name most likely do, too. */
export function fitsAsItStands(recorded: Recommendation, baseRung: Rung): boolean {
  const { status, own_batch: own, max_micro_batch: max } = recorded;
  return status === 'verified' && own != null && own <= max && sameRung(rungOf(recorded), baseRung);
}

/** Why a job runs at less than the recorded size. */
function asAsked({ micro_batch, world_size }: Config, { micro_batch: recorded }: Recommendation): string {
  return `The script asks for batches of ${micro_batch} by itself and runs as it stands, though ${recorded} at a time would fit: --effective-batch ${recorded * world_size} makes each step of so many, which changes the training.`;
}

/** A note on a command without one batch size, and no effective batch. `kept`: the hook cuts its batches, and no `{micro_batch}` sets them. */
export function noBatchOfItsOwn(microBatch: number, kept = false): string {
  if (kept)
    return `The command's batches have no one size that is known: it keeps its own, and those that are larger run in micro-batches of at most ${microBatch} samples.`;
  return `The command has no batch of its own: it runs at the recommended micro-batch ${microBatch} with accumulation 1; --effective-batch N keeps another.`;
}

interface KnownCommand {
  digest: string;
  exactDigest: string;
  own: OwnBatch;
  carrier(knob: Knob): Carrier;
}

/** The oldest are forgotten; a forgotten one costs a probe. */
const KEPT = 64;

/** The command's own batch, if the record holds for it; null: unknown, as words outside the digest may set a script's batch. */
export function ownBatchOf(recorded: Recommendation, target: KnownCommand): OwnBatch | null {
  const seen = recorded.commands?.find((one) => one.digest === target.exactDigest);
  if (seen !== undefined) return merge(target.own, seen);
  if (recorded.command_digest !== target.digest) return null;
  const stated = target.own.microBatch !== null || target.carrier('micro_batch') !== 'hook';
  return stated || recorded.commands === undefined ? merge(target.own, recorded) : null;
}

/** The list with this command last. */
export function withCommand(known: readonly VerifiedCommand[], target: KnownCommand, own: OwnBatch): VerifiedCommand[] {
  const entry = {
    digest: target.exactDigest,
    own_batch: own.microBatch,
    own_accumulation: own.accumulation,
    own_samples: own.samples ?? null,
  };
  return [...known.filter((one) => one.digest !== entry.digest), entry].slice(-KEPT);
}

/** The own batch of the command and, if seen, of its loop. */
export const ownOf = ({ own }: Pick<KnownCommand, 'own'>, loop: Loop | null): OwnBatch => ({
  microBatch: own.microBatch ?? loop?.own_batch ?? null,
  accumulation: own.accumulation,
  samples: loop?.samples ?? own.samples ?? null,
});

type Seen = Pick<Recommendation, 'own_batch' | 'own_accumulation'> & Pick<Partial<VerifiedCommand>, 'own_samples'>;

const merge = (own: OwnBatch, seen: Seen): OwnBatch => ({
  microBatch: own.microBatch ?? seen.own_batch ?? null,
  accumulation: own.accumulation ?? seen.own_accumulation ?? null,
  samples: own.samples ?? seen.own_samples ?? null,
});
