import { OomtuneError } from '../../common/errors.js';
import type { EstimateReport } from '../../contract/estimate.js';
import { shown } from '../../contract/rung.js';
import type { Target } from '../target.js';
import type { Card } from './cards.js';
import type { Followings } from './following.js';
import { type Place, StepReplay } from './step-replay.js';

/** Larger batches than this are no answer. */
const MOST = 1_000_000;
/** More bytes than any card has. */
const ENDLESS = 2 ** 42;

/** What is always said. */
const UNKNOWABLE = [
  'Kernels’ own workspaces (cuDNN, Triton, compiled models) are not known without a GPU: up to 192 MiB are allowed for them. What torch keeps for cuBLAS is counted.',
  'Evaluation, generation and saving are not followed; neither are other processes on the card.',
];

interface Wish {
  cards: Card[];
  /** Micro-batches whose peaks are asked for. */
  sizes: number[];
  headroomPct: number;
}

/** What the followed steps need on each card. */
export function estimateReport(
  target: Target,
  { own, traces, measured, rung, torch }: Followings,
  { cards, sizes, headroomPct }: Wish,
): EstimateReport {
  if (traces.every(({ prelude, events }) => prelude.length + events.length === 0))
    throw new OomtuneError(
      'OOMTUNE_NOT_ESTIMATED',
      'The script puts nothing on a GPU: all its tensors stay on the host.',
      'Give it the flag with which it trains on a GPU. Without one, `oomtune find-batch --device cpu` finds its batch on the host.',
    );
  const aligned = traces.length > 1 ? StepReplay.of(traces) : null;
  const replay = aligned ?? StepReplay.of(traces.filter((trace) => trace.micro_batch === own?.micro_batch));
  if (replay === null)
    throw new OomtuneError(
      'OOMTUNE_NOT_ESTIMATED',
      'The script’s steps at different batch sizes are not the same operations.',
      'On a machine with a GPU `oomtune find-batch` measures what cannot be worked out here.',
    );
  const notes = [...new Set(traces.flatMap((trace) => trace.notes)), ...UNKNOWABLE];
  if (aligned === null)
    notes.unshift(
      'Its steps at other sizes are not the same operations, so that only its own batch could be worked out.',
    );
  const multiplies = traces.some((trace) => trace.multiplies);
  const convolves = traces.some((trace) => trace.convolves);
  const contextOf = ({ context }: Card): number =>
    context.base + (multiplies ? context.cublas : 0) + (convolves ? context.cudnn : 0);
  const withKernels = (reserved: number, { kernels }: Card): number =>
    reserved + Math.min(kernels.part * reserved, kernels.most);
  /** The most that torch may reserve of so many bytes, so that kernels have theirs. */
  const reservable = (bytes: number, { kernels }: Card): number =>
    Math.floor(Math.max(bytes / (1 + kernels.part), bytes - kernels.most));
  const placeOf = (card: Card, limit: number): Place => ({
    limit,
    expandable: target.expandableSegments === 'on',
    workspaces: multiplies ? [card.workspace, card.workspace] : [],
  });
  const [first] = cards as [Card];
  const peakAt = (size: number) => {
    const { reserved, allocated } = replay.at(size, placeOf(first, ENDLESS));
    return {
      micro_batch: size,
      peak_bytes: Math.ceil(withKernels(reserved, first)) + contextOf(first),
      reserved_bytes: reserved,
      allocated_bytes: allocated,
    };
  };
  return {
    schema: 1,
    name: target.name,
    own: own === null ? null : { ...own, ...peakAt(own.micro_batch) },
    rung: shown(rung),
    torch,
    followed: traces.map((trace) => trace.micro_batch),
    parameter_bytes: measured?.parameter_bytes ?? null,
    gradient_bytes: measured?.gradient_bytes ?? null,
    optimizer_state_bytes: measured?.optimizer_state_bytes ?? null,
    asked: aligned === null ? [] : sizes.map(peakAt),
    cards: cards.map((card) => {
      const context = contextOf(card);
      const free = reservable(card.total * (1 - headroomPct / 100) - context, card);
      const largest = aligned === null || free <= 0 ? 0 : aligned.largest(placeOf(card, free), MOST);
      return {
        name: card.name,
        total_bytes: card.total,
        context_bytes: context,
        context_measured: card.measured,
        own_fits:
          own === null ? null : replay.at(own.micro_batch, placeOf(card, reservable(card.total - context, card))).fits,
        micro_batch: largest,
        peak_bytes:
          largest === 0
            ? null
            : Math.ceil(withKernels(replay.at(largest, placeOf(card, free)).reserved, card)) + context,
      };
    }),
    headroom_pct: headroomPct,
    notes,
  };
}
