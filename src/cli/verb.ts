import type { Argument, Command } from 'commander';
import { usageError } from '../common/errors.js';
import type { Context } from './context.js';
import { addOptions, COMMON, type Options } from './options.js';

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

/**
 * Verbs are loaded when they are called: `--help` must not wait for Redis clients and schemas. A file has one as its default, or
 * several by the last word of their names.
 */
type Loader = () => Promise<{ default: Verb } | Record<string, Verb>>;

export type Dispatch = (invocation: Invocation, load: () => Promise<Verb>) => Promise<void>;

/** What a verb takes. */
interface Shape {
  options?: Options[];
  args?: Argument[];
  /** Two dashes may be followed by the user's command, or have to be. */
  command?: 'may' | 'must';
  hidden?: boolean;
}

/** The verbs whose two dashes are followed by the user's command; for all others they end the options. */
export const takesCommand = new WeakSet<Command>();

/** Makes verbs: each checks how it was called, and hands the rest to `dispatch`. `heading`: under which `--help` lists them. */
export function verbMaker(program: Command, dispatch: Dispatch, command: string[]) {
  return (parent: Command, heading: string | null = null) =>
    (name: string, about: string, load: Loader, { options = [], args, ...shape }: Shape = {}): Command => {
      const path = parent === program ? name : `${parent.name()} ${name}`;
      const made = parent.command(name, { hidden: shape.hidden ?? false }).description(about);
      if (heading !== null) made.helpGroup(heading);
      for (const argument of args ?? []) made.addArgument(argument);
      if (shape.command) {
        takesCommand.add(made);
        if (args === undefined) made.usage('[options] -- COMMAND…');
      }
      for (const some of [...options, COMMON]) addOptions(made, some);
      // where only the command may stand, a forgotten `--` is told from a stray word
      made.allowExcessArguments(shape.command === 'must');
      made.action(() => {
        if (shape.command === 'must') checkCommand(path, made.args, command);
        const invocation = { verb: path, args: made.args, options: made.optsWithGlobals(), command, program };
        return dispatch(invocation, async () => {
          const verbs: Record<string, Verb> = await load();
          return (verbs.default ?? verbs[name]) as Verb;
        });
      });
      return made;
    };
}

/** Throws OOMTUNE_USAGE for a command that is missing, or stands before the two dashes. */
function checkCommand(verb: string, words: string[], command: string[]): void {
  const help = `See \`oomtune ${verb} --help\`.`;
  if (words.length > 0 && command.length > 0)
    throw usageError(`Unexpected word "${words[0]}" before the two dashes.`, help);
  if (words.length > 0) {
    const said = words.join(' ');
    throw usageError(`The command "${said}" must follow two dashes.`, `Write: oomtune ${verb} [options] -- ${said}`);
  }
  if (command.length === 0) {
    throw usageError(
      'There is no command to work on.',
      `Write it after two dashes: oomtune ${verb} [options] -- python train.py`,
    );
  }
  if (command[0] === '') throw usageError('The command is an empty word.', help);
}
