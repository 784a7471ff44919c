import { OomtuneError } from '../../common/errors.js';
import { knobVariable } from '../../contract/knob.js';
import type { CommandPlan } from '../command/index.js';
import { knobNames } from '../command/placeholders.js';

/** Throws OOMTUNE_NO_KNOB where nothing in the command takes the value. */
export function requireKnob(name: string, { command, program, inner }: CommandPlan): void {
  const read = (inner.scriptText ?? program.code ?? '').includes(knobVariable(name));
  if (read || knobNames(command).has(name)) return;
  throw new OomtuneError(
    'OOMTUNE_NO_KNOB',
    `Nothing in the command takes ${name}.`,
    `Put {${name}} where its value goes, as in --${name.replaceAll('_', '-')} {${name}}, or read ${knobVariable(name)} in the script.`,
  );
}
