import { OomtuneError } from '../common/errors.js';
import { unusableFolder } from '../common/refusal.js';

/** What the supervisor says of a launch that it could not start (`<subject>: <strerror>`), as an error that a user can act on. */
export function startFailure(said: string, command: string, dir: string): OomtuneError {
  const cause = new Error(said);
  const why = said.slice(said.lastIndexOf(': ') + 2);
  if (said.startsWith('cwd ')) {
    return new OomtuneError('OOMTUNE_USAGE', `The folder ${said.slice(4)}.`, 'Check the path given to --cwd.', {
      cause,
    });
  }
  if (!said.startsWith(`${command}: `)) return unusableFolder(dir, cause);
  const remedy = /format/i.test(why)
    ? 'A script needs its interpreter in its first line (#!/bin/sh), or before it in the command; a program has to be made for this machine.'
    : /too long/i.test(why)
      ? 'Give the program its arguments in a file.'
      : 'Is the interpreter that its first line names there, and may this user run it?';
  return new OomtuneError('OOMTUNE_COMMAND_MISSING', `The command ${command} cannot be started: ${why}.`, remedy, {
    cause,
  });
}
