import { usageError } from '../../common/errors.js';
import { knobVariable } from '../../contract/knob.js';
import { type Config, HOOK_KNOBS } from '../../contract/rung.js';
import { EXPANDABLE_SEGMENTS } from '../memory/allocator.js';
import type { Editor } from './editor.js';
import { locateFile, writeCopy } from './files.js';
import { KNOBS, writeKnobs } from './knobs.js';
import { fillPlaceholders } from './placeholders.js';
import { editorOf } from './recognise.js';
import type { CommandPlan, FilledCommand, Knob } from './types.js';

/** The command with the knobs, and copies of configuration files in `launchDir` (null: none). Throws OOMTUNE_USAGE. */
export async function fill(
  plan: CommandPlan,
  config: Config,
  options: { launchDir: string | null },
): Promise<FilledCommand> {
  refuseUnsupported(plan, config);
  const front = plan.command.slice(0, plan.program.argsStart);
  const args = fillPlaceholders(plan.command.slice(plan.program.argsStart), config);
  const filled: FilledCommand = { argv: [], env: knobVariables(config), files: [] };
  const carried = new Set<Knob>(KNOBS.filter((knob) => plan.carriers[knob] === 'preset'));
  const editor = carried.size > 0 ? editorOf(plan, args) : null;
  if (editor) {
    writeKnobs(editor, config, carried);
    if (options.launchDir !== null) filled.files = writeCopies(editor, options.launchDir);
  }
  filled.argv = [...fillPlaceholders(front, config), ...(editor?.args ?? args)];
  return filled;
}

function refuseUnsupported(plan: CommandPlan, config: Config): void {
  const refuse = (what: string, able: string) => {
    throw usageError(`${plan.presetTitle ?? 'The command'} cannot be run with ${what}.`, `Choose one of: ${able}.`);
  };
  if (!plan.supports.amp.includes(config.amp))
    refuse(`--amp ${config.amp}`, plan.supports.amp.map((amp) => `--amp ${amp}`).join(', '));
  if (!plan.supports.checkpointing.includes(config.checkpointing)) {
    const able = plan.supports.checkpointing.map((on) => `--checkpointing ${on ? 'on' : 'off'}`).join(', ');
    refuse(`--checkpointing ${config.checkpointing ? 'on' : 'off'}`, able);
  }
}

/** The variables of the contract that carry knobs. */
export function knobVariables(config: Config): Record<string, string> {
  const env: Record<string, string> = {
    OOMTUNE_MICRO_BATCH: String(config.micro_batch),
    OOMTUNE_ACCUMULATION: String(config.accumulation),
    OOMTUNE_EFFECTIVE_BATCH: String(config.micro_batch * config.accumulation * config.world_size),
    OOMTUNE_AMP: config.amp,
    OOMTUNE_CHECKPOINTING: config.checkpointing ? '1' : '0',
  };
  if (config.micro_batch_tokens) env.OOMTUNE_MICRO_BATCH_TOKENS = String(config.micro_batch_tokens);
  for (const knob of HOOK_KNOBS) {
    const value = config[knob];
    if (value) env[`OOMTUNE_${knob.toUpperCase()}`] = value === true ? '1' : value;
  }
  if (config.knob) env[knobVariable(config.knob.name)] = String(config.knob.value);
  if (config.expandable_segments) Object.assign(env, EXPANDABLE_SEGMENTS);
  return env;
}

/** Innermost first: the copy of a file that another one names must be there before the other can name it. */
function writeCopies(editor: Editor, launchDir: string): string[] {
  const written: string[] = [];
  for (const file of [...editor.files].reverse()) {
    if (!editor.edited.has(file)) continue;
    const copy = writeCopy(launchDir, file, editor.config(file).text());
    written.push(copy);
    if (file.within) {
      const outer = editor.files.find((f) => f.name === file.within?.file);
      if (outer) {
        editor.config(outer).set(file.within.path, copy);
        editor.edited.add(outer);
      }
      continue;
    }
    const rule = editor.preset.files[file.name];
    const place = rule ? locateFile(editor.args, rule) : null;
    if (place) editor.args[place.index] = `${place.prefix}${copy}`;
  }
  return written;
}
