import { accessSync, constants, statSync } from 'node:fs';
import { resolve } from 'node:path';
import { OomtuneError } from '../common/errors.js';

function executable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return statSync(file).isFile();
  } catch {
    return false;
  }
}

function exists(file: string): boolean {
  try {
    statSync(file);
    return true;
  } catch {
    return false;
  }
}

/**
 * The file that `name` stands for, looked for as the supervisor will: in the job's PATH, from the job's folder. Throws
 * OOMTUNE_COMMAND_MISSING.
 */
export function findCommand(name: string, env: Record<string, string>, cwd: string): string {
  const folders = name.includes('/') ? [''] : (env.PATH ?? '/usr/local/bin:/usr/bin:/bin').split(':');
  const files = folders.map((folder) => resolve(cwd, name.includes('/') ? name : `${folder || '.'}/${name}`));
  const found = files.find(executable);
  if (found) return found;
  const present = files.find(exists);
  throw present
    ? new OomtuneError(
        'OOMTUNE_COMMAND_MISSING',
        `The command ${present} is not executable.`,
        `Make it so with \`chmod +x\`, or name its interpreter first: python ${name} …`,
      )
    : new OomtuneError(
        'OOMTUNE_COMMAND_MISSING',
        name.includes('/') ? `There is no command ${files[0]}.` : `The command "${name}" is in no folder of PATH.`,
        'Check the spelling, and whether the environment that has it is active.',
      );
}
