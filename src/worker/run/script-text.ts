import { resolve } from 'node:path';
import { readRegular } from '../../common/regular-file.js';
import type { ScriptText } from '../diagnosis/in-place.js';

/** A script that people write is smaller. */
const MOST_BYTES = 1024 ** 2;

/** Reads the files that a job's tracebacks name, as from its folder: Python before 3.9 names the script as the command does. */
export function scriptTextIn(cwd: string): ScriptText {
  return (file) => {
    try {
      return readRegular(resolve(cwd, file), MOST_BYTES);
    } catch {
      return null;
    }
  };
}
