import { resolve } from 'node:path';
import { filesAnswer } from '../../common/far-files.js';
import type { JobOptions } from '../../contract/options.js';

const LOOK_MS = 10_000;

/** All paths that a request names, or could: its folder and files, each word of the command, the folders of PATH. */
export function pathsOf(
  command: readonly string[],
  { cwd, envFile }: Pick<JobOptions, 'cwd' | 'envFile'>,
  environment: NodeJS.ProcessEnv,
): string[] {
  const words = command.flatMap((word) => (word.includes('=') ? [word, word.slice(word.indexOf('=') + 1)] : [word]));
  const folders = (environment.PATH ?? '').split(':');
  return [cwd, ...(envFile === null ? [] : [envFile]), ...words, ...folders].map((path) => resolve(cwd, path));
}

/** Whether what a command names can be looked at: who only wants to know what it wrote does without, and waits no longer. */
export async function canLookAt(command: readonly string[], cwd: string): Promise<boolean> {
  const paths = pathsOf(command, { cwd, envFile: null }, {});
  return filesAnswer(paths, LOOK_MS, null).then(
    () => true,
    () => false,
  );
}
