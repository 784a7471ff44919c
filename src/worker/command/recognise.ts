import { usageError } from '../../common/errors.js';
import { findExecutable } from '../../common/executable.js';
import { readText } from '../../common/regular-file.js';
import type { Amp } from '../../contract/rung.js';
import { presetFiles, presetNamed, readPreset } from '../presets/load.js';
import { holds, matchPreset, type Scene } from '../presets/match.js';
import type { Preset } from '../presets/schema.js';
import { Editor } from './editor.js';
import { findFiles } from './files.js';
import { settleInterpreter } from './interpreter.js';
import { countFor, KNOBS, readOwn, readWorld, supportedAmp, supportedCheckpointing, switchFor } from './knobs.js';
import { type PlaceholderName, placeholders } from './placeholders.js';
import { findProgram } from './program.js';
import { head } from './script.js';
import type { Carrier, CommandPlan, Knob, OwnValues, Program } from './types.js';

const ALL_AMP: Amp[] = ['off', 'bf16', 'fp16'];
const TORCH =
  /\b(?:torch|torchvision|lightning|pytorch_lightning|transformers|timm|ultralytics|accelerate|deepspeed|fairseq|trl|diffusers|torchtune|torchtitan)\b/;

export interface RecogniseOptions {
  cwd: string;
  /** The job's environment: PATH, VIRTUAL_ENV and PYTHONPATH are read. */
  env: NodeJS.ProcessEnv;
  /** `auto`, `none`, or a preset's name. */
  preset: string;
  /** Processes that the job will have, where the command does not say (`--gpus N`). */
  worldSize?: number | null;
  /** What the command gets on its stdin, where that can be told; absent: not. */
  stdin?: string | null;
  /** Knobs of the command's own that are to have a value when it is filled in. */
  knobs?: ReadonlySet<string>;
}

/** Understands a command, by reading files only. Throws OOMTUNE_BAD_PLACEHOLDER, or OOMTUNE_USAGE for an unknown preset. */
export async function recognise(command: readonly string[], options: RecogniseOptions): Promise<CommandPlan> {
  if (command.length === 0 || command[0] === '')
    throw usageError('There is no command.', 'Give the command after --, as in: -- python train.py');
  const { cwd, env } = options;
  const used = placeholders(command, options.knobs);
  const program = findProgram(command, cwd, env);
  settleInterpreter(program, command, cwd, env);
  if (program.script?.path.endsWith('.ipynb'))
    throw usageError(
      `${program.script.path} is a notebook, which Python cannot run.`,
      'Make a script of it (jupyter nbconvert --to script NOTEBOOK), or call oomtune.find_batch(train) in it.',
    );
  if (program.piped) program.code = options.stdin ?? null;
  const scriptText = program.script ? readText(program.script.absolute) : null;
  const scene: Scene = { program, args: command.slice(program.argsStart), scriptText, env, cwd };
  const file =
    options.preset === 'none'
      ? null
      : options.preset === 'auto'
        ? matchPreset(presetFiles(), scene)
        : presetNamed(options.preset);
  const preset = file ? readPreset(file) : null;
  const notes: string[] = [];
  const files = preset ? findFiles(preset, scene, cwd) : [];
  const editor = preset ? new Editor(preset, scene, files) : null;
  const worldSize = program.worldSize ?? (editor ? readWorld(editor) : null) ?? options.worldSize ?? null;
  const own: OwnValues = editor
    ? readOwn(editor, worldSize)
    : { microBatch: null, accumulation: null, amp: null, checkpointing: null, worldSize };
  const isPythonTorch = guessTorch(program, scriptText, preset, env);
  const reader = readerOf(program, scriptText, env);
  const hook = options.preset !== 'none' && isPythonTorch !== false;
  const carriers = Object.fromEntries(
    KNOBS.map((knob): [Knob, Carrier] => [knob, carrierOf(knob, used, editor, reader, hook)]),
  ) as Record<Knob, Carrier>;
  // A placeholder's value is not the command's own.
  if (carriers.micro_batch === 'argv-placeholder') own.microBatch = null;
  if (carriers.accumulation === 'argv-placeholder') own.accumulation = null;
  if (carriers.amp === 'argv-placeholder') own.amp = null;
  if (carriers.checkpointing === 'argv-placeholder') own.checkpointing = null;
  const count = editor && carriers.micro_batch === 'preset' ? countFor(editor, 'micro_batch') : null;
  if (hook && program.isolated && Object.values(carriers).includes('hook'))
    notes.push(`Python's ${program.isolated} keeps the hook out: without it the script cannot be tuned unmodified.`);
  if (preset && scriptText === null && program.script)
    notes.push(`${program.script.path} cannot be read: the preset ${preset.name} goes by its name alone.`);
  for (const note of preset?.notes ?? []) if (holds(note.when, scene)) notes.push(note.text);
  return {
    command: [...command],
    cwd,
    carriers,
    preset: preset?.name ?? null,
    presetTitle: preset?.title ?? null,
    own,
    supports: {
      amp: ampOf(carriers.amp, command, editor, own),
      checkpointing: checkpointingOf(carriers.checkpointing, editor, own),
      accumulation: carriers.accumulation !== 'none',
    },
    unit: count?.unit ?? 'samples',
    minBatch: count?.unit === 'tokens' && editor ? tokensOfOne(editor) : null,
    program,
    isPythonTorch,
    worldSize,
    processesHere: program.processesHere ?? worldSize,
    nodes: program.nodes ?? 1,
    resumes: preset?.resumes ? holds(preset.resumes, scene) : null,
    notes,
    inner: { preset, files, scriptText, env: pathsOnly(env) },
  };
}

function carrierOf(
  knob: Knob,
  used: ReadonlySet<PlaceholderName>,
  editor: Editor | null,
  reader: string | null,
  hook: boolean,
): Carrier {
  if (used.has(knob)) return 'argv-placeholder';
  // A script that knows the effective batch and the micro-batch computes the accumulation itself.
  if (knob === 'accumulation' && used.has('effective_batch') && used.has('micro_batch')) return 'argv-placeholder';
  if (editor) {
    const count = knob === 'micro_batch' || knob === 'accumulation' ? countFor(editor, knob) : null;
    if (count) return 'preset';
    if (knob === 'amp' || knob === 'checkpointing') {
      const item = switchFor(editor, knob);
      if (item) return item.fixed ? 'none' : 'preset';
    }
  }
  if (reader && readsKnob(reader, knob)) return 'env';
  return hook ? 'hook' : 'none';
}

function readsKnob(text: string, knob: Knob): boolean {
  if (text.includes(`OOMTUNE_${knob.toUpperCase()}`)) return true;
  if (!/^\s*(?:import\s+oomtune\b|from\s+oomtune\b)/m.test(text)) return false;
  return new RegExp(`\\.${knob}\\b|["']${knob}["']`).test(text);
}

/** Text in which a read of OOMTUNE_* would show: the script, the code after -c, a compiled program's strings. */
function readerOf(program: Program, scriptText: string | null, env: NodeJS.ProcessEnv): string | null {
  if (scriptText !== null || program.code !== null) return scriptText ?? program.code;
  const file = program.executable ? findExecutable(program.executable, env) : null;
  return file ? head(file, 16 * 1024 * 1024) : null;
}

function guessTorch(
  program: Program,
  scriptText: string | null,
  preset: Preset | null,
  env: NodeJS.ProcessEnv,
): boolean | null {
  if (preset) return true;
  const text = scriptText ?? program.code;
  if (program.kind === 'python') {
    if (text === null) return program.wrappers.includes('torchrun') ? true : null;
    // What a script imports from its own folder may import torch: only "yes" is certain.
    return TORCH.test(text) ? true : null;
  }
  if (program.kind === 'shell') return null;
  const file = program.executable ? findExecutable(program.executable, env) : null;
  const start = file ? head(file, 4) : null;
  return start === '\x7fELF' ? false : null;
}

function ampOf(carrier: Carrier, command: readonly string[], editor: Editor | null, own: OwnValues): Amp[] {
  if (carrier === 'none') return [own.amp ?? 'off'];
  if (carrier === 'preset' && editor) {
    const item = switchFor(editor, 'amp');
    return item ? supportedAmp(editor, item) : [own.amp ?? 'off'];
  }
  if (carrier === 'argv-placeholder' && !command.some((element) => element.includes('{amp}'))) {
    // `{amp?--bf16}` names its kind: fp16 could not be asked for with it.
    const texts = command.flatMap((element) => [...element.matchAll(/\{amp\?([^{}]*)\}/g)].map((m) => m[1] as string));
    if (texts.some((text) => /bf16|bfloat16/i.test(text))) return ['off', 'bf16'];
    if (texts.some((text) => /fp16|float16|half/i.test(text))) return ['off', 'fp16'];
  }
  return ALL_AMP;
}

function checkpointingOf(carrier: Carrier, editor: Editor | null, own: OwnValues): boolean[] {
  if (carrier === 'none') return [own.checkpointing ?? false];
  if (carrier === 'preset' && editor) {
    const item = switchFor(editor, 'checkpointing');
    return item ? supportedCheckpointing(editor, item) : [own.checkpointing ?? false];
  }
  return [false, true];
}

/** Where a batch is counted in tokens it must hold at least one sample of the longest kind. */
function tokensOfOne(editor: Editor): number | null {
  const option = Object.hasOwn(editor.preset.options, 'sample_tokens') ? editor.read('sample_tokens') : undefined;
  const value = Number(option);
  return Number.isInteger(value) && value > 0 ? value : null;
}

/** A plan may be kept or printed: of the environment it holds only what finds packages. */
function pathsOnly(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const { PATH, PYTHONPATH, VIRTUAL_ENV, CONDA_PREFIX } = env;
  return { PATH, PYTHONPATH, VIRTUAL_ENV, CONDA_PREFIX };
}

/** The preset's view of a plan, fresh for each use. */
export function editorOf(plan: CommandPlan, args?: readonly string[]): Editor | null {
  const { preset, files, scriptText, env } = plan.inner;
  if (!preset) return null;
  const own = args ?? plan.command.slice(plan.program.argsStart);
  return new Editor(preset, { program: plan.program, args: own, scriptText, env, cwd: plan.cwd }, files);
}
