import { basename, resolve } from 'node:path';
import { wrapperModule, wrapperOf } from './launchers.js';
import { executableOf, isPython, setScript, shebangOf } from './script.js';
import type { Program } from './types.js';
import { readWrapper } from './wrapper.js';

const SHELLS = new Set(['sh', 'bash', 'dash', 'zsh', 'ksh']);
/** What they start shows only by running them, as with a shell script. */
const TASK_RUNNERS = new Set(['make', 'gmake', 'just']);
/**
 * Finds the program behind its wrappers. Reads only first lines of files, to tell shell scripts from Python ones. `env`: the job's environment, which
 * launchers may be told their counts by; absent: those are not wanted.
 */
export function findProgram(command: readonly string[], cwd: string, env: NodeJS.ProcessEnv = {}): Program {
  const program: Program = {
    kind: 'command',
    interpreter: null,
    script: null,
    module: null,
    code: null,
    piped: false,
    name: null,
    executable: null,
    argsStart: command.length,
    wrappers: [],
    env: {},
    clean: false,
    worldSize: null,
    processesHere: null,
    nodes: null,
    nodesBy: null,
    oneNode: null,
    isolated: null,
  };
  let at = 0;
  // `cd here && …` needs a shell, so at most a handful of wrappers stand in front of a program.
  for (let depth = 0; depth < 12 && at < command.length; depth += 1) {
    const word = command[at] as string;
    const name = basename(word);
    if (name === 'env') {
      program.wrappers.push(name);
      at = readEnv(command, at + 1, program);
      continue;
    }
    if (isPython(name)) {
      const next = readPython(command, at, cwd, program, env);
      if (next === null) return program;
      at = next;
      continue;
    }
    const wrapper = wrapperOf(name);
    if (wrapper && (!wrapper.verb || command.slice(at + 1, at + 6).includes(wrapper.verb))) {
      program.wrappers.push(name);
      // A launcher's own shebang tells which Python the script will run under.
      if (wrapper.script) program.executable = executableOf(word, cwd);
      const next = readWrapper(command, at + 1, wrapper, cwd, program, seenBehind(program, env));
      if (next === null) return program;
      at = next;
      continue;
    }
    return readPlain(command, at, cwd, program);
  }
  return program;
}

/** The job's environment, as what stands behind `env` sees it. */
export const seenBehind = ({ env, clean }: Program, job: NodeJS.ProcessEnv): NodeJS.ProcessEnv =>
  clean ? env : { ...job, ...env };

function readEnv(command: readonly string[], from: number, program: Program): number {
  let at = from;
  for (; at < command.length; at += 1) {
    const word = command[at] as string;
    if (word === '--') return at + 1;
    const unset = /^(?:-[i0v]*u|--unset(?:=|$))(.*)$/.exec(word);
    if (/^(?:-|-[0v]*i.*|--ignore-environment)$/.test(word)) {
      program.clean = true;
      program.env = {};
    }
    if (unset) {
      const name = unset[1] || command[++at];
      if (name !== undefined) program.env[name] = undefined;
    } else if (/^(?:-C|--chdir|-S)$/.test(word)) at += 1;
    else if (/^[A-Za-z_][A-Za-z0-9_]*=/.test(word)) {
      const cut = word.indexOf('=');
      program.env[word.slice(0, cut)] = word.slice(cut + 1);
    } else if (!word.startsWith('-')) return at;
  }
  return at;
}

function readPlain(command: readonly string[], index: number, cwd: string, program: Program): Program {
  const word = command[index] as string;
  const name = basename(word);
  program.argsStart = index + 1;
  if (SHELLS.has(name)) {
    program.kind = 'shell';
    for (let at = index + 1; at < command.length; at += 1) {
      const part = command[at] as string;
      if (/^[-+][a-zA-Z]*c[a-zA-Z]*$/.test(part)) {
        program.code = command[at + 1] ?? null;
        program.argsStart = Math.min(at + 2, command.length);
        return program;
      }
      if (part === '-o' || part === '+o') at += 1;
      else if (!part.startsWith('-') && !part.startsWith('+')) {
        setScript(command, at, cwd, program);
        return program;
      }
    }
    return program;
  }
  program.name = name;
  program.executable = executableOf(word, cwd);
  if (TASK_RUNNERS.has(name)) program.kind = 'shell';
  if (!word.includes('/')) return program;
  const absolute = resolve(cwd, word);
  const runs = shebangOf(absolute);
  if (runs === null) return program;
  // pip's console scripts (bin/yolo) have a Python shebang too: they keep their name beside the script.
  if (isPython(runs)) {
    program.kind = 'python';
    program.interpreter = { index: null, path: runs };
    setScript(command, index, cwd, program);
  } else if (SHELLS.has(basename(runs))) {
    program.kind = 'shell';
    setScript(command, index, cwd, program);
  }
  return program;
}

/** Python options that take a value: in the same argument or the next. */
const PYTHON_VALUED = /^-[bBdEhiIOPqRsSuvVx]*([WX])(.*)$/;

/** Returns the index to go on from when the module is itself a launcher, or null when the program was found. */
function readPython(
  command: readonly string[],
  index: number,
  cwd: string,
  program: Program,
  env: NodeJS.ProcessEnv,
): number | null {
  program.kind = 'python';
  program.interpreter = { index, path: command[index] as string };
  program.executable = executableOf(command[index] as string, cwd);
  for (let at = index + 1; at < command.length; at += 1) {
    const word = command[at] as string;
    if (word === '-') {
      program.piped = true;
      program.argsStart = at + 1;
      return null;
    }
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
      const wrapper = value === undefined ? undefined : wrapperModule(value);
      if (wrapper) {
        program.wrappers.push(value as string);
        return readWrapper(command, next, wrapper, cwd, program, seenBehind(program, env));
      }
      program.module = value ?? null;
      program.argsStart = next;
      return null;
    }
  }
  program.piped = !command.slice(index + 1).some((word) => /^(?:-[Vh]+|--version|--help.*)$/.test(word));
  program.argsStart = command.length;
  return null;
}
