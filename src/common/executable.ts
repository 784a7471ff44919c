import { accessSync, closeSync, constants, existsSync, readSync, statSync } from 'node:fs';
import { delimiter, join, resolve } from 'node:path';
import { OomtuneError } from './errors.js';
import { isFolder } from './home.js';
import { openRegular } from './regular-file.js';

/** A program's file, by PATH where its name is no path; null when there is none. */
export function findExecutable(name: string, { PATH = '' }: NodeJS.ProcessEnv): string | null {
  if (name.includes('/')) return existsSync(name) ? resolve(name) : null;
  const files = PATH.split(delimiter).flatMap((folder) => (folder === '' ? [] : [join(folder, name)]));
  return files.find((file) => existsSync(file)) ?? null;
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return statSync(file).isFile();
  } catch {
    return false;
  }
}

/** The file that `name` runs, by the job's PATH and folder. Throws OOMTUNE_COMMAND_MISSING, also where that folder is gone. */
export function findCommand(name: string, env: Record<string, string>, cwd: string): string {
  if (!isFolder(cwd))
    throw new OomtuneError(
      'OOMTUNE_COMMAND_MISSING',
      `The folder ${cwd}, in which the command is to run, ${existsSync(cwd) ? 'is none' : 'does not exist (any more)'}.`,
      'Make it again, or name another one with --cwd.',
    );
  const folders = name.includes('/') ? [''] : (env.PATH ?? '/usr/local/bin:/usr/bin:/bin').split(':');
  const files = folders.map((folder) => resolve(cwd, name.includes('/') ? name : `${folder || '.'}/${name}`));
  const found = files.find(isExecutable);
  if (found) return found;
  const present = files.find((file) => existsSync(file) && (name.includes('/') || !isFolder(file)));
  if (present !== undefined && isFolder(present))
    throw new OomtuneError(
      'OOMTUNE_COMMAND_MISSING',
      `The command ${present} is a folder.`,
      'Name the program that is to run: python train.py …',
    );
  throw present
    ? new OomtuneError(
        'OOMTUNE_COMMAND_MISSING',
        `The command ${present} is not executable.`,
        startable(present)
          ? `Make it so with \`chmod +x\`, or name its interpreter first: ${interpreterOf(name)} ${name} …`
          : `Name its interpreter first: ${interpreterOf(name)} ${name} … It has none in its first line (#!), so \`chmod +x\` alone would not do.`,
      )
    : new OomtuneError(
        'OOMTUNE_COMMAND_MISSING',
        name.includes('/') ? `There is no command ${files[0]}.` : `The command "${name}" is in no folder of PATH.`,
        remedyFor(name, cwd),
      );
}

/** A program, a script whose first line names its interpreter, or what cannot be looked into. */
function startable(path: string): boolean {
  const file = openRegular(path);
  if (file === null) return true;
  const begin = Buffer.alloc(4);
  try {
    readSync(file.fd, begin);
  } finally {
    closeSync(file.fd);
  }
  return /^(?:\x7fELF|#!)/.test(begin.toString('latin1'));
}

const interpreterOf = (name: string): string => (/\.py$/.test(name) ? 'python' : 'bash');

const BUILTINS = /^(?:cd|export|source|\.|ulimit|module)$/;

/** What people write whose command is none. */
function remedyFor(name: string, cwd: string): string {
  const [first = '', ...rest] = name.trim().split(/\s+/);
  if (/^[A-Za-z_]\w*=/.test(name)) return `A variable goes before the program by env: -- env ${first} COMMAND….`;
  if (BUILTINS.test(first))
    return `Only a shell knows "${first}": -- bash -c '${first} …; COMMAND…'. For another folder there is --cwd.`;
  if (rest.length > 0) return `The command is one word with blanks in it. Leave its quotes out: -- ${name.trim()}`;
  if (!name.includes('/') && existsSync(resolve(cwd, name)) && !isFolder(resolve(cwd, name)))
    return `It is a file of this folder. Name its interpreter first, or its folder: ${interpreterOf(name)} ${name}, ./${name}.`;
  const alias = name.includes('/') ? '' : ' For an alias of your shell write out what it stands for.';
  return `Check the spelling, and whether the environment that has it is active.${alias}`;
}
