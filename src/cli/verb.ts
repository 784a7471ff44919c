import type { Argument, Command } from 'commander';
import type { Context } from './context.js';
import { usageError } from './errors.js';
import { addCommonOptions, addSubmitOptions, addWorkOptions } from './options.js';
import { commandBeforeDashes, noCommand, takesCommand, usageOf } from './user-command.js';

/** What a verb is handed: its positional arguments, its options, and the user's command (all that follows `--`). */
export interface Invocation {
  verb: string;
  args: string[];
  options: Record<string, unknown>;
  command: string[];
  /** What completion scripts are made from. */
  program: Command;
}

/** A verb does its work and answers with the exit code. */
export type Verb = (invocation: Invocation, context: Context) => Promise<number>;

/** Verbs are loaded when they are called: `--help` must not wait for Redis clients and schemas. */
type Loader = () => Promise<{ default: Verb }>;

export type Dispatch = (invocation: Invocation, load: Loader) => Promise<void>;

/** What a verb takes, beside its options. */
export interface Shape {
  /** The heading under which `--help` lists it. */
  group?: string;
  args?: Argument[];
  /** The user's command follows two dashes. */
  takesCommand?: boolean;
  /** It works on that command: now, or later by a daemon. */
  work?: 'here' | 'queued';
  hidden?: boolean;
}

/** Makes verbs: each checks how it was called, and hands the rest to `dispatch`. */
export function verbMaker(program: Command, dispatch: Dispatch, command: string[]) {
  return (parent: Command, name: string, about: string, load: Loader, shape: Shape = {}): Command => {
    const path = parent === program ? name : `${parent.name()} ${name}`;
    const made = parent.command(name, { hidden: shape.hidden ?? false }).description(about);
    if (shape.group) made.helpGroup(shape.group);
    for (const argument of shape.args ?? []) made.addArgument(argument);
    if (shape.takesCommand) {
      takesCommand.add(made);
      made.usage(`${usageOf(shape.args)}[options] -- COMMAND…`);
    }
    if (shape.work) addWorkOptions(made);
    if (shape.work === 'queued') addSubmitOptions(made);
    // where only the command may stand, a forgotten `--` is told from a stray word
    made.allowExcessArguments(Boolean(shape.takesCommand) && !shape.args);
    addCommonOptions(made);
    made.action(() => {
      const extra = shape.takesCommand && !shape.args ? made.args : [];
      if (extra.length > 0) throw commandBeforeDashes(path, extra, command);
      if (shape.work && command.length === 0) throw noCommand(path);
      if (shape.work && command[0] === '')
        throw usageError('The command is an empty word.', `See \`oomtune ${path} --help\`.`);
      return dispatch({ verb: path, args: made.args, options: made.optsWithGlobals(), command, program }, load);
    });
    return made;
  };
}
