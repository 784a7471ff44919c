import { hash } from 'node:crypto';
import { findOption, removeOccurrences } from './argv.js';
import { canonical } from './config-file.js';
import { locateFile } from './files.js';
import { tunedOptions } from './knobs.js';
import { findProgram } from './program.js';
import { editorOf } from './recognise.js';
import { stemOf } from './script.js';
import type { CommandPlan, Program } from './types.js';

/** Flags that say a batch size or an accumulation in scripts that no preset knows: the hook sets both whatever they say. */
const COMMON =
  /^--(?:train[-_])?(?:per[-_]device[-_]train[-_]|micro[-_]|mini[-_])?batch[-_]?size$|^--(?:grad|gradient)[-_]accum(?:ulation)?(?:[-_]steps)?$/;

/** SHA-256 of the command without its tuned values. Script paths are absolute; a preset's files count by content. */
export function digest(plan: CommandPlan): string {
  const { program, command } = plan;
  const front = [...command.slice(0, program.argsStart)];
  if (program.script) front[program.script.index] = program.script.absolute;
  const editor = editorOf(plan);
  const parts: unknown[] = [front];
  if (program.piped && program.code !== null) parts.push(program.code);
  if (!editor) parts.push(withoutCommon(command.slice(program.argsStart)));
  else {
    let args = [...editor.args];
    for (const file of editor.files) {
      const rule = editor.preset.files[file.name];
      if (!rule || rule.script) continue;
      const config = editor.config(file);
      for (const option of tunedOptions(editor)) {
        for (const path of editor.variants(option).flatMap((variant) => variant.files?.[file.name] ?? []))
          config.remove(path);
      }
      const place = locateFile(args, rule);
      if (place) args[place.index] = `${place.prefix}<${file.name}>`;
      parts.push([file.name, canonical(config.data())]);
    }
    for (const option of tunedOptions(editor)) {
      for (const rule of editor.variants(option)) args = removeOccurrences(args, findOption(args, rule));
    }
    parts.push(args);
  }
  return hash('sha256', JSON.stringify(parts));
}

/** SHA-256 (hex) of the command to the letter, for who has its `digest` already: with `--batch-size 8` it differs from 548's. */
export function exactDigest(plan: CommandPlan, digest: string): string {
  return hash('sha256', JSON.stringify([digest, plan.command]));
}

function withoutCommon(args: readonly string[]): string[] {
  const kept: string[] = [];
  for (let index = 0; index < args.length; index += 1) {
    const arg = args[index] as string;
    const [flag = '', value] = arg.split('=', 2);
    if (!COMMON.test(flag)) kept.push(arg);
    else if (value === undefined && /^\d+$/.test(args[index + 1] ?? '')) index += 1;
  }
  return kept;
}

/** The name of a job without `--name`: stem of the script (or module, or program) and 8 hex digits of the digest. */
export function defaultName(plan: CommandPlan): string {
  return `${stemOfProgram(plan.program, plan.command)}-${digest(plan).slice(0, 8)}`;
}

/** What a job without `--name` is called: `train` for `torchrun --nproc_per_node 2 src/train.py --lr 1`. */
export function stemOfCommand(command: readonly string[], cwd: string): string {
  return stemOfProgram(findProgram(command, cwd), command);
}

function stemOfProgram({ script, module, name, code }: Program, command: readonly string[]): string {
  const stem = script?.stem ?? module?.split('.').at(-1) ?? name;
  return nameOf(stem ?? (code === null ? stemOf(command[0] ?? 'job') : 'code'));
}

/** What `--name` would take as well, so that the command that is printed with it can be run. */
function nameOf(stem: string): string {
  const plain = stem.replace(/[^\p{L}\p{M}\p{N}._-]+/gu, '-').replace(/^[-.]+|-+$/g, '');
  return [...plain].slice(0, 80).join('') || 'job';
}
