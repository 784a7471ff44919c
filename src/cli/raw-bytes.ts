import { isUtf8 } from 'node:buffer';
import { readFileSync } from 'node:fs';
import { usageError } from '../common/errors.js';

/** What Node puts in the place of bytes that are no UTF-8, in words and variables alike. */
const REPLACED = '\ufffd';

/** Throws OOMTUNE_USAGE for a word of the command line that is no UTF-8: Node has changed it, and it would name another file. */
export function checkWords(words: readonly string[]): void {
  if (!words.some((word) => word.includes(REPLACED))) return;
  const raw = entries('/proc/self/cmdline').find((word) => !isUtf8(word));
  if (raw === undefined) return;
  throw usageError(
    `The word "${raw.toString()}" of the command line holds bytes that are no UTF-8.`,
    'Write what needs these bytes into a script and run that (a variable is exported there), or rename the file that is meant.',
  );
}

/** The variables of our environment whose values are no UTF-8: Node has changed them, and a job gets them so. */
export function changedVariables(env: NodeJS.ProcessEnv): string[] {
  const suspects = Object.keys(env).filter((name) => env[name]?.includes(REPLACED));
  if (suspects.length === 0) return [];
  const raw = new Map(entries('/proc/self/environ').map((entry) => [entry.toString().split('=', 1)[0], entry]));
  return suspects.filter((name) => !isUtf8(raw.get(name) ?? Buffer.alloc(0)));
}

/** A file of the kernel's with a zero byte after each entry; none where there is no such file. */
function entries(path: string): Buffer[] {
  let text: Buffer;
  try {
    text = readFileSync(path);
  } catch {
    return [];
  }
  // A byte a letter, so that it can be split as text.
  return text
    .toString('latin1')
    .split('\0')
    .map((entry) => Buffer.from(entry, 'latin1'));
}
