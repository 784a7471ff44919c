import { setTimeout as sleep } from 'node:timers/promises';
import { longestStartMs } from '../common/bounds.js';
import { OomtuneError, usageError } from '../common/errors.js';
import { unusableFolder } from '../common/refusal.js';
import { signal } from './ending.js';
import type { Native } from './native.js';
import { readSupervisor } from './records.js';
import { supervisorsOf } from './traces.js';
import type { LaunchSpec } from './types.js';

/** For a supervisor to give up a start before it is killed, and again before it is left alone. */
const GIVE_UP_MS = 10_000;
const LOOK_MS = 200;

/** Starts the supervisor for the written `spec`; resolves once the job runs or could not be started. */
export async function started({ addon, supervisor }: Native, spec: LaunchSpec): Promise<void> {
  const longest = longestStartMs(); // a program on a file system that does not answer never begins
  let over = false;
  const begun = addon.spawnSupervisor(supervisor, spec.dir, spec.output === 'inherit').finally(() => {
    over = true;
  });
  begun.catch(() => {}); // it may fail after nobody waits for it any more
  const within = async (ms: number, givenUp = () => false) => {
    for (const until = Date.now() + ms; !over && Date.now() < until && !givenUp(); ) {
      await Promise.race([begun, sleep(LOOK_MS, undefined, { ref: false })]);
      if (!over) tell(spec.dir, 'SIGCONT'); // a job may stop its supervisor before that has said that it runs
    }
    return over;
  };
  if (!(await within(longest, spec.givenUp))) {
    tell(spec.dir, 'SIGTERM');
    if (!(await within(GIVE_UP_MS))) for (const pid of supervisorsOf(spec.dir)) signal(pid, 'SIGKILL');
  }
  if (!(await within(GIVE_UP_MS))) throw stuck(spec, longest);
  await begun;
}

function tell(dir: string, name: NodeJS.Signals): void {
  const record = readSupervisor(dir);
  if (record !== null && record !== 'torn') signal(record.pid, name);
}

function stuck({ argv, cwd }: LaunchSpec, longest: number): OomtuneError {
  return new OomtuneError(
    'OOMTUNE_COMMAND_MISSING',
    `The command ${argv[0]} did not start within ${longest / 1000} s.`,
    `Is the file system that it stands on, or ${cwd}, one that does not answer (NFS, FUSE)?`,
  );
}

/** A supervisor's message on a failed start (`<subject>: <strerror>`) as an error that a user can act on. */
export function startFailure(said: string, command: string, dir: string): OomtuneError {
  const cause = new Error(said);
  const why = said.slice(said.lastIndexOf(': ') + 2);
  if (said.startsWith('cwd '))
    return usageError(`The folder ${said.slice(4)}.`, 'Check the path given to --cwd.', { cause });
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
