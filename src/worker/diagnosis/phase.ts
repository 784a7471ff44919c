import type { Diagnosis } from '../../contract/diagnosis.js';
import type { Event } from './event.js';
import { evaluatesInPlace, modelCall, type ScriptText } from './in-place.js';
import type { Frame, Traceback } from './traceback.js';
import { wordsOf } from './words.js';

type Phase = Diagnosis['phase'];

/** Names of functions, and what a job is doing in them. Whole names, or names with one of these as a part. */
const WHOLE = new Map<string, Phase>(
  Object.entries({
    eval: `
      evaluate eval eval_step eval_epoch evaluation_loop evaluation_step prediction_loop prediction_step predict
      predict_step validate valid val val_epoch validation validation_step validation_epoch_end
      on_validation_epoch_end estimate_loss test test_step _run_validation _run_evaluation _run_sanity_check _evaluate
      compute_metrics val_step run_eval run_validation
    `,
    save: `
      save _save torch_save save_model save_checkpoint save_pretrained save_state save_weights _save_checkpoint
      get_model_state_dict _get_model_state_dict get_optimizer_state_dict _get_optim_state_dict get_state_dict
      dump_checkpoint _save_optimizer_and_scheduler _legacy_save state_dict full_state_dict save_file
    `,
    load: `
      load _load _legacy_load load_state_dict load_model load_checkpoint from_pretrained from_config
      _load_pretrained_model _load_state_dict_into_model _load_state_dict_into_meta_model load_weights
      restore_location default_restore_location build_model create_model get_model make_model setup_model init_model
      initialize_model dispatch_model prepare_model _load_best_model _load_from_checkpoint resume load_shard
      _init_flat_param _init_flat_param_and_metadata flatten_params flatten_tensors _init_param_handle_from_module
      _sync_module_params_and_buffers
    `,
    train: `
      train train_step training_step train_one_epoch train_epoch train_loop _inner_training_loop _train_loop
      run_training_batch backward optimizer_step compute_loss _optimizer_step fit _do_train do_train step update
    `,
  }).flatMap(([phase, names]) => wordsOf(names).map((name) => [name, phase as Phase])),
);

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
const NEUTRAL = new Set(['fit', 'train', 'run', 'main', 'update', 'step', 'compute_loss']);

/** What the job was doing, as far as the failure's traceback, the script's text, the lines before it and its progress tell. */
export function phaseOf(event: Event, textOf: ScriptText | null): Phase {
  if (event.phase) return event.phase;
  const traced = event.traceback ? tracedPhase(event.traceback, textOf) : 'unknown';
  if (traced !== 'unknown') return traced;
  const { stage, trained } = event.progress;
  if (stage !== null && (stage !== 'load' || !trained)) return stage;
  return trained ? 'train' : 'unknown';
}

/** The innermost frame that tells has the word; a frame that merely trains yields to a more telling caller. */
function tracedPhase(traceback: Traceback, textOf: ScriptText | null): Phase {
  let weak: Phase = 'unknown';
  const call = modelCall(traceback.frames);
  for (let i = traceback.frames.length - 1; i >= 0; i--) {
    const frame = traceback.frames[i] as Frame;
    const name = frame.function.split('.').at(-1) as string;
    const found = sourcePhase(frame) ?? namePhase(name);
    if (!found) continue;
    // A model may call its own forward pass `predict`: inside one only a step tells what it is called for.
    if (found === 'eval' && call >= 0 && i > call && !name.endsWith('_step')) continue;
    if (found === 'train' && NEUTRAL.has(name)) {
      if (weak === 'unknown') weak = 'train';
      continue;
    }
    return found;
  }
  return textOf !== null && evaluatesInPlace(traceback.frames, textOf) ? 'eval' : weak;
}

function namePhase(name: string): Phase | null {
  const whole = WHOLE.get(name);
  if (whole) return whole;
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
