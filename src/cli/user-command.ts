import type { Argument, Command } from 'commander';
import { usageError } from './errors.js';

/** The verbs whose two dashes are followed by the user's command; for all others they end the options. */
export const takesCommand = new WeakSet<Command>();

export function usageOf(args: Argument[] | undefined): string {
  return (args ?? []).map((argument) => `[${argument.name()}] `).join('');
}

export function noCommand(verb: string) {
  return usageError(
    'There is no command to work on.',
    `Write it after two dashes: oomtune ${verb} [options] -- python train.py`,
  );
}

export function commandBeforeDashes(verb: string, words: string[], command: string[]) {
  return command.length > 0
    ? usageError(`Unexpected word "${words[0]}" before the two dashes.`, `See \`oomtune ${verb} --help\`.`)
    : usageError(
        `The command "${words.join(' ')}" must follow two dashes.`,
        `Write: oomtune ${verb} [options] -- ${words.join(' ')}`,
      );
}
