import { formatBytes } from '../../common/size.js';
import type { Diagnosis, MemoryPicture, MemoryReason } from '../../contract/diagnosis.js';
import type { Signals } from './signals.js';
import type { Traceback } from './traceback.js';

/** All that can tell why the device's memory did not do. */
export interface Scene {
  picture: MemoryPicture | null;
  /** What the framework allows itself, and what of it its allocator holds, in bytes; null: not said. */
  allowed: number | null;
  reserved: number | null;
  phase: Diagnosis['phase'];
  traceback: Traceback | null;
  growth: Signals['growth'];
  /** The variable that grew with it. */
  keptBy: string | null;
  deviceData: boolean;
  gradInEval: boolean | null;
  /** The training loop had ended. */
  ended: boolean;
  /** The host's memory is the device. */
  host: boolean;
  /** What there is in all is the budget that the job was given. */
  budget: boolean;
}

/** No device has so much; one request for it is a wrong shape, whatever the device. */
const NO_DEVICE = 200 * 1024 ** 3;
/** Free memory that allocators cannot use: they round up, and ask for larger blocks than were asked of them. */
const ROUNDING = 512 * 1024 ** 2;

/** Why there was too little memory; the order is that of what to look at first. */
export function reasonOf(scene: Scene): MemoryReason {
  const { picture, phase, growth } = scene;
  const total = picture?.total_bytes ?? null;
  const asked = picture?.asked_bytes ?? null;
  const others = picture?.others_bytes ?? null;
  const unallocated = picture?.unallocated_bytes ?? null;
  const ofData = scene.deviceData || movesData(scene.traceback);
  if (!ofData && inWorker(scene.traceback)) return 'worker';
  // An evaluation, or a data set, of everything at once asks for more than there is, too: its remedy is the phase's.
  if (asked !== null && asked > (total ?? NO_DEVICE)) {
    if (phase !== 'train' && phase !== 'unknown') return phase;
    return scene.ended ? 'after' : 'asked';
  }
  if (isLimited(scene)) return 'limit';
  if (others !== null && others > (total === null ? 2 ** 30 : Math.max(total * 0.15, asked ?? 0))) return 'neighbour';
  if (ofData) return 'data';
  if (growth && growth.bytesPerStep > 0) return 'leak';
  if (unallocated !== null && asked !== null && unallocated >= asked && unallocated > (total ?? 0) * 0.05) {
    return 'fragmentation';
  }
  if (phase === 'load' || phase === 'eval' || phase === 'save') return phase;
  return scene.ended ? 'after' : 'batch';
}

/** Refused though it was there: the framework's own limit was reached, or something beside the device's size is one. */
function isLimited({ picture, allowed, reserved }: Scene): boolean {
  const asked = picture?.asked_bytes ?? null;
  const free = picture?.free_bytes ?? null;
  if (asked === null) return false;
  if (allowed !== null && reserved !== null && reserved + asked > allowed) return true;
  return free !== null && free > 2 * asked + ROUNDING;
}

/** A data set or its collation puts tensors on the device: frames of it, and in one of them the move. */
function movesData(traceback: Traceback | null): boolean {
  const frames = traceback?.frames ?? [];
  const from = frames.findIndex(
    ({ function: name, file }) =>
      /^(?:__getitem__|__getitems__|collate\w*|\w*collate_fn)$/.test(name) ||
      (name === '__init__' && /data(?:set|module|loader)?s?\.py$/i.test(file)),
  );
  return from >= 0 && frames.slice(from).some((frame) => /\.(?:to|cuda)\(/.test(frame.source));
}

/** Raised in a process of torch's data loader, whose traceback its parent prints. */
const inWorker = (traceback: Traceback | null) =>
  traceback?.frames.some(({ function: name, file }) => name === '_worker_loop' && /worker\.py$/.test(file)) ?? false;

/** One or two sentences: the figures that make the reason plain. */
export function causeOf(
  reason: MemoryReason,
  { picture, allowed, phase, growth, keptBy, traceback, gradInEval, budget }: Scene,
): string {
  const more = picture?.asked_bytes ? `${formatBytes(picture.asked_bytes)} more` : 'more';
  const size = (bytes: number | null | undefined) => formatBytes(bytes ?? 0);
  const total = picture?.total_bytes ? ` of ${size(picture.total_bytes)}` : '';
  switch (reason) {
    case 'asked':
      return `One request, ${size(picture?.asked_bytes)}, is larger than ${picture?.total_bytes ? `the whole ${budget ? 'budget' : 'device'} (${size(picture.total_bytes)})` : 'any device'}: a wrong shape is more likely than a batch that is too large.`;
    case 'limit':
      if (allowed !== null)
        return `The framework allows itself ${size(allowed)}${total ? ` of the device's ${size(picture?.total_bytes)}` : ''}, and asked for ${more} than that.`;
      return `${size(picture?.asked_bytes)} were refused while ${size(picture?.free_bytes)} were free: it is not the size of the device that ran out.`;
    case 'neighbour':
      return `Other processes hold ${size(picture?.others_bytes)}${total} on the device${namesOf(picture)}; the job itself asked for ${more}.`;
    case 'data':
      return 'The data set itself puts its tensors on the device, so that all of it (or a copy for each worker) lives there beside the model.';
    case 'fragmentation':
      return `The allocator holds ${size(picture?.unallocated_bytes)} that no tensor uses, but in pieces too small for the ${size(picture?.asked_bytes)} asked for: memory is fragmented.`;
    case 'leak':
      return `Memory grew by ${size(growth?.bytesPerStep)} a step over ${growth?.steps ?? 0} steps, until the device was full: ${keptBy === null ? 'losses or outputs are kept together with their graph, or gradients are never zeroed' : `it is kept by ${keptBy}`}.`;
    case 'load':
      return `The device ran out of memory before the first step, while the model or the data were loaded or made: it asked for ${more}. No batch size will help.`;
    case 'eval':
      return `The device ran out of memory in evaluation, not in training: it asked for ${more}.${graphSentence({ traceback, gradInEval })}`;
    case 'after':
      return `The device ran out of memory when the training loop had ended, in what the script does then: it asked for ${more}. No training step was under way, so no batch size will help.`;
    case 'worker':
      return `A worker process of the data loader ran out of memory while it made a batch, not the training: it asked for ${more}.`;
    case 'save':
      return `The device ran out of memory while a checkpoint was saved: it asked for ${more}.`;
    default:
      return `The device ran out of memory${phase === 'train' ? ' in a training step' : ''}: the job asked for ${more}${total ? ` on a device${total}` : ''}.`;
  }
}

/** torch's decorators, under the name of all of them or, in newer ones, of each. */
const GUARD = /^(?:decorate_context|no_grad|inference_mode)$/;

/** Whether evaluation is known to keep no graph: the hook may know; torch's decorator shows in the frames. */
function keepsNoGraph({ traceback, gradInEval }: Pick<Scene, 'traceback' | 'gradInEval'>): boolean {
  const guarded = traceback?.frames.some(({ function: name, file }) => GUARD.test(name) || /grad_mode\.py$/.test(file));
  return gradInEval === false || (gradInEval !== true && guarded === true);
}

function graphSentence(scene: Pick<Scene, 'traceback' | 'gradInEval'>): string {
  if (scene.gradInEval)
    return ' Gradients were on: it built a graph that nobody needs, since torch.no_grad() is missing.';
  if (keepsNoGraph(scene))
    return ' It keeps no graph, so it is the evaluation batch, or outputs that are collected on the device.';
  return ' If torch.no_grad() is missing there, it also builds a graph that nobody needs.';
}

function namesOf(picture: MemoryPicture | null): string {
  const all = picture?.neighbours ?? [];
  if (all.length === 0) return '';
  const shown = all.slice(0, 4).map((p) => `pid ${p.pid}${p.name ? ` ${p.name}` : ''}: ${formatBytes(p.bytes)}`);
  return ` (${shown.join('; ')}${all.length > 4 ? `; ${all.length - 4} more` : ''})`;
}

interface Remedy {
  /** Key of the advice. */
  advice: string;
  /** What a tuner can do about it. */
  cure: NonNullable<Diagnosis['cure']>;
}

const REMEDIES: Record<MemoryReason, Remedy> = {
  asked: { advice: 'asked-too-much', cure: 'smaller' },
  limit: { advice: 'limit', cure: 'smaller' },
  neighbour: { advice: 'neighbour', cure: 'wait' },
  data: { advice: 'data', cure: 'none' },
  fragmentation: { advice: 'fragmentation', cure: 'expandable_segments' },
  leak: { advice: 'leak', cure: 'none' },
  load: { advice: 'load', cure: 'none' },
  eval: { advice: 'eval', cure: 'none' },
  save: { advice: 'save', cure: 'none' },
  after: { advice: 'after', cure: 'none' },
  worker: { advice: 'loader-worker', cure: 'smaller' },
  batch: { advice: 'smaller-batch', cure: 'smaller' },
};

/** Reasons against which the host's memory helps, unless that is what ran out. */
const TO_HOST = new Set<MemoryReason>(['load', 'eval', 'save', 'after']);

/** What helps against it. */
export function remedyOf(reason: MemoryReason, scene: Scene): Remedy {
  const { allowed, host } = scene;
  // Nothing that the job does explains it: perhaps what held the memory is gone.
  if (reason === 'limit' && allowed === null) return { advice: 'not-full', cure: 'wait' };
  const known = REMEDIES[reason];
  const remedy = reason === 'eval' && keepsNoGraph(scene) ? { ...known, advice: 'eval-no-graph' } : known;
  return host && TO_HOST.has(reason) ? { ...remedy, advice: `${remedy.advice}-host` } : remedy;
}
