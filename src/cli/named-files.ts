import { resolve } from 'node:path';
import { longestStartMs } from '../common/bounds.js';
import { filesAnswer } from '../common/far-files.js';
import { pathsOf } from '../worker/command/named-paths.js';
import type { Invocation } from './verb.js';

/** Somebody sits in front of it. */
const LONGEST_MS = 30_000;
/** Verbs whose arguments are files. */
const OF_FILES = ['diagnose'];

/** Throws OOMTUNE_FILES_SILENT where what was named on the command line stands on a file system that does not answer. */
export async function namedFilesAnswer(
  { verb, args, options, command }: Invocation,
  signal: AbortSignal,
): Promise<void> {
  const given = [options.report, options.plot, ...(OF_FILES.includes(verb) ? args : [])];
  const files = given.filter((one): one is string => typeof one === 'string').map((path) => resolve(path));
  const cwd = resolve(typeof options.cwd === 'string' ? options.cwd : '.');
  const envFile = typeof options.envFile === 'string' ? options.envFile : null;
  if (command.length > 0) files.push(...pathsOf(command, { cwd, envFile }, process.env));
  await filesAnswer(files, Math.min(LONGEST_MS, longestStartMs()), signal);
}
