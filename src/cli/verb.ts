import type { Argument, Command } from 'commander';
import { usageError } from '../common/errors.js';
import type { Context } from './context.js';
import { addOptions, COMMON, type Options } from './options.js';

/** Positional arguments, options, and the user's command (all that follows `--`). */
export interface Invocation {
  verb: string;
  args: string[];
  options: Record<string, unknown>;
  command: string[];
  /** What completion scripts are made from. */
  program: Command;
}

/** Does the work and returns the exit code. */
export type Verb = (invocation: Invocation, context: Context) => Promise<number>;

/** Loads a verb when it is called, so that `--help` loads no Redis client: the file's default, or an export per sub-verb. */
type Loader = () => Promise<{ default: Verb } | Record<string, Verb>>;

export type Dispatch = (invocation: Invocation, load: () => Promise<Verb>) => Promise<void>;

interface Shape {
  options?: Options[];
  args?: Argument[];
  /** Two dashes may be followed by the user's command, or have to be. */
  command?: 'may' | 'must';
  hidden?: boolean;
}

/** Verbs with a user's command after `--`; for all others `--` ends the options. */
export const takesCommand = new WeakSet<Command>();

/** Makes verbs that check their arguments and call `dispatch`. `heading`: their group in `--help`. */
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
      // where only the command may stand, tells a forgotten `--` from a stray word
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

/** Throws OOMTUNE_USAGE for a missing command, or one without `--` before it. */
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

/** An option's whole number; null: not given. Throws OOMTUNE_USAGE with `remedy`. */
export function readNumber(
  flag: string,
  value: unknown,
  { least = 0, most, remedy }: { least?: number; most?: number; remedy: string },
): number | null {
  if (value === undefined) return null;
  const number = Number(value);
  if (/^-?\d+$/.test(String(value)) && number >= least && number <= (most ?? Number.MAX_SAFE_INTEGER)) return number;
  const range = most === undefined ? `of at least ${least}` : `from ${least} to ${most}`;
  throw usageError(`Expected ${flag} to be a whole number ${range}, got "${value}".`, remedy);
}
