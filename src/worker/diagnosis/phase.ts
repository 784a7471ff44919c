import type { Diagnosis } from '../../contract/diagnosis.js';
import type { Event } from './event.js';
import type { Frame, Traceback } from './traceback.js';

type Phase = Diagnosis['phase'];

/** Names of functions, and what a job is doing in them. Whole names, or names with one of these as a part. */
const WHOLE: Record<string, Phase> = {
  evaluate: 'eval',
  eval: 'eval',
  eval_step: 'eval',
  eval_epoch: 'eval',
  evaluation_loop: 'eval',
  evaluation_step: 'eval',
  prediction_loop: 'eval',
  prediction_step: 'eval',
  predict: 'eval',
  predict_step: 'eval',
  validate: 'eval',
  valid: 'eval',
  val: 'eval',
  val_epoch: 'eval',
  validation: 'eval',
  validation_step: 'eval',
  validation_epoch_end: 'eval',
  on_validation_epoch_end: 'eval',
  estimate_loss: 'eval',
  test: 'eval',
  test_step: 'eval',
  _run_validation: 'eval',
  _run_evaluation: 'eval',
  _run_sanity_check: 'eval',
  _evaluate: 'eval',
  compute_metrics: 'eval',
  val_step: 'eval',
  run_eval: 'eval',
  run_validation: 'eval',
  save: 'save',
  _save: 'save',
  torch_save: 'save',
  save_model: 'save',
  save_checkpoint: 'save',
  save_pretrained: 'save',
  save_state: 'save',
  save_weights: 'save',
  _save_checkpoint: 'save',
  dump_checkpoint: 'save',
  _save_optimizer_and_scheduler: 'save',
  _legacy_save: 'save',
  state_dict: 'save',
  full_state_dict: 'save',
  save_file: 'save',
  load: 'load',
  _load: 'load',
  _legacy_load: 'load',
  load_state_dict: 'load',
  load_model: 'load',
  load_checkpoint: 'load',
  from_pretrained: 'load',
  from_config: 'load',
  _load_pretrained_model: 'load',
  _load_state_dict_into_model: 'load',
  _load_state_dict_into_meta_model: 'load',
  load_weights: 'load',
  restore_location: 'load',
  default_restore_location: 'load',
  build_model: 'load',
  create_model: 'load',
  get_model: 'load',
  make_model: 'load',
  setup_model: 'load',
  init_model: 'load',
  initialize_model: 'load',
  dispatch_model: 'load',
  prepare_model: 'load',
  _load_best_model: 'load',
  _load_from_checkpoint: 'load',
  resume: 'load',
  load_shard: 'load',
  _init_flat_param: 'load',
  _init_flat_param_and_metadata: 'load',
  flatten_params: 'load',
  flatten_tensors: 'load',
  _init_param_handle_from_module: 'load',
  _sync_module_params_and_buffers: 'load',
  train: 'train',
  train_step: 'train',
  training_step: 'train',
  train_one_epoch: 'train',
  train_epoch: 'train',
  train_loop: 'train',
  _inner_training_loop: 'train',
  _train_loop: 'train',
  run_training_batch: 'train',
  backward: 'train',
  optimizer_step: 'train',
  compute_loss: 'train',
  _optimizer_step: 'train',
  fit: 'train',
  _do_train: 'train',
  do_train: 'train',
  step: 'train',
  update: 'train',
};

const PARTS: readonly (readonly [string, Phase])[] = [
  ['save_checkpoint', 'save'],
  ['save_model', 'save'],
  ['state_dict_hook', 'save'],
  ['evaluat', 'eval'],
  ['validat', 'eval'],
  ['load_checkpoint', 'load'],
  ['load_model', 'load'],
  ['load_state', 'load'],
  ['from_pretrained', 'load'],
  ['train_one', 'train'],
  ['train_epoch', 'train'],
  ['training_step', 'train'],
  ['train_step', 'train'],
];

/** Functions that say nothing by themselves: their callers do. */
const NEUTRAL = new Set(['fit', 'train', 'run', 'main', 'update', 'step']);

/** What the job was doing, as far as the failure's traceback, the lines before it and its progress tell. */
export function phaseOf(event: Event): Phase {
  if (event.phase) return event.phase;
  const traced = event.traceback ? tracedPhase(event.traceback) : 'unknown';
  if (traced !== 'unknown') return traced;
  const { stage, trained } = event.progress;
  if (stage !== null && (stage !== 'load' || !trained)) return stage;
  return trained ? 'train' : 'unknown';
}

/** The innermost frame that tells has the word; a frame that merely trains yields to a more telling caller. */
function tracedPhase(traceback: Traceback): Phase {
  let weak: Phase = 'unknown';
  for (let i = traceback.frames.length - 1; i >= 0; i--) {
    const frame = traceback.frames[i] as Frame;
    const name = frame.function.split('.').at(-1) as string;
    const found = sourcePhase(frame) ?? namePhase(name);
    if (!found) continue;
    if (found === 'train' && NEUTRAL.has(name)) {
      if (weak === 'unknown') weak = 'train';
      continue;
    }
    return found;
  }
  return weak;
}

function namePhase(name: string): Phase | null {
  if (Object.hasOwn(WHOLE, name)) return WHOLE[name] as Phase;
  for (const [part, phase] of PARTS) if (name.includes(part)) return phase;
  return null;
}

const MODEL_MOVED =
  /\b(?:model|net|network|module|encoder|decoder|unet|vae|backbone|teacher|student|policy|critic|actor|generator|discriminator|self)\w*\s*(?:=.{0,80})?\.(?:to|cuda|half|float|bfloat16)\(/;
const MODEL_MADE = /^(?:self\.)?(?:model|net|network)\s*=\s*\w/;

/** What the source line itself shows. */
function sourcePhase({ source }: Frame): Phase | null {
  if (source === '') return null;
  if (/\.backward\(|optimizer\.step\(|scaler\.step\(|optim\.step\(|\.training_step\(/.test(source)) return 'train';
  if (/torch\.save\(|\.save_pretrained\(|save_checkpoint\(|\.save_weights\(/.test(source)) return 'save';
  if (/\.from_pretrained\(|torch\.load\(|load_state_dict\(|load_checkpoint\(|load_model\(/.test(source)) return 'load';
  if (/\b(?:evaluate|validate|validation_step|predict)\(/.test(source)) return 'eval';
  if (MODEL_MOVED.test(source) || MODEL_MADE.test(source)) return 'load';
  return null;
}
