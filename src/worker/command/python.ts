import { WRAPPER_MODULES } from './launchers.js';
import { executableOf, setScript } from './script.js';
import type { Program } from './types.js';
import { readWrapper } from './wrapper.js';

/** Python options that take a value: in the same argument or the next. */
const PYTHON_VALUED = /^-[bBdEhiIOPqRsSuvVx]*([WX])(.*)$/;

/** Returns the index to go on from when the module is itself a launcher, or null when the program was found. */
export function readPython(command: readonly string[], index: number, cwd: string, program: Program): number | null {
  program.kind = 'python';
  program.interpreter = { index, path: command[index] as string };
  program.executable = executableOf(command[index] as string, cwd);
  for (let at = index + 1; at < command.length; at += 1) {
    const word = command[at] as string;
    if (word === '-') break;
    if (!word.startsWith('-')) {
      setScript(command, at, cwd, program);
      return null;
    }
    if (word.startsWith('--')) {
      if (word === '--check-hash-based-pycs') at += 1;
      continue;
    }
    const valued = PYTHON_VALUED.exec(word);
    const cluster = valued ? word.slice(0, word.indexOf(valued[1] as string)) : word;
    const isolating = /[IES]/.exec(cluster.replace(/[mc].*$/, ''));
    if (isolating) program.isolated = `-${isolating[0]}`;
    if (valued) {
      if (valued[2] === '') at += 1;
      continue;
    }
    const special = /^-[a-zA-Z]*?([mc])(.*)$/.exec(word);
    if (special) {
      const value = special[2] || command[at + 1];
      const next = special[2] ? at + 1 : at + 2;
      if (special[1] === 'c') {
        program.code = value ?? null;
        program.argsStart = next;
        return null;
      }
      const wrapper = value === undefined ? undefined : WRAPPER_MODULES[value];
      if (wrapper) {
        program.wrappers.push(value as string);
        return readWrapper(command, next, wrapper, cwd, program);
      }
      program.module = value ?? null;
      program.argsStart = next;
      return null;
    }
  }
  program.argsStart = command.length;
  return null;
}
