import { basename, resolve } from 'node:path';
import { WRAPPER_MODULES, WRAPPERS, type Wrapper } from './launchers.js';
import { isPython, shebangOf } from './shebang.js';
import type { Program } from './types.js';

const SHELLS = new Set(['sh', 'bash', 'dash', 'zsh', 'ksh']);
/** Python options that take a value: in the same argument or the next. */
const PYTHON_VALUED = /^-[bBdEhiIOPqRsSuvVx]*([WX])(.*)$/;

/** Finds the program behind its wrappers. Reads only first lines of files, to tell shell scripts from Python ones. */
export function findProgram(command: readonly string[], cwd: string): Program {
  const program: Program = {
    kind: 'command',
    interpreter: null,
    script: null,
    module: null,
    code: null,
    name: null,
    executable: null,
    argsStart: command.length,
    wrappers: [],
    env: {},
    worldSize: null,
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
      const next = readPython(command, at, cwd, program);
      if (next === null) return program;
      at = next;
      continue;
    }
    const wrapper = WRAPPERS[name];
    if (wrapper && (!wrapper.verb || command.slice(at + 1, at + 6).includes(wrapper.verb))) {
      program.wrappers.push(name);
      // A launcher's own shebang tells which Python the script will run under.
      if (wrapper.script) program.executable = executableOf(word, cwd);
      const next = readWrapper(command, at + 1, wrapper, cwd, program);
      if (next === null) return program;
      at = next;
      continue;
    }
    return readPlain(command, at, cwd, program);
  }
  return program;
}

function readEnv(command: readonly string[], from: number, program: Program): number {
  let at = from;
  for (; at < command.length; at += 1) {
    const word = command[at] as string;
    if (word === '--') return at + 1;
    if (/^(?:-u|--unset|-C|--chdir|-S)$/.test(word)) at += 1;
    else if (/^[A-Za-z_][A-Za-z0-9_]*=/.test(word)) {
      const cut = word.indexOf('=');
      program.env[word.slice(0, cut)] = word.slice(cut + 1);
    } else if (!word.startsWith('-')) return at;
  }
  return at;
}

/** Returns the index to go on from when the module is itself a launcher, or null when the program was found. */
function readPython(command: readonly string[], index: number, cwd: string, program: Program): number | null {
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

function readWrapper(
  command: readonly string[],
  from: number,
  wrapper: Wrapper,
  cwd: string,
  program: Program,
): number | null {
  let left = wrapper.arguments ?? 0;
  let verb = wrapper.verb;
  let mode: 'script' | 'module' | 'executable' = 'script';
  const counts = new Map<readonly string[], number>();
  let at = from;
  for (; at < command.length; at += 1) {
    const word = command[at] as string;
    if (word === '--') {
      at += 1;
      break;
    }
    if (!word.startsWith('-') || word === '-') {
      if (verb !== undefined && word === verb) {
        verb = undefined;
        continue;
      }
      if (left === 0) break;
      left -= 1;
      continue;
    }
    const attached = wrapper.valued && /^-[a-zA-Z]\d+$/.test(word); // `srun -n4`
    const equals = attached ? 1 : word.indexOf('=');
    const option = attached ? word.slice(0, 2) : equals > 0 ? word.slice(0, equals) : word;
    if (wrapper.module?.includes(option)) mode = 'module';
    if (wrapper.executable?.includes(option)) mode = 'executable';
    const bare = wrapper.valued ? !wrapper.valued.includes(option) : (wrapper.bare?.includes(option) ?? !wrapper.bare);
    const value = attached
      ? word.slice(2)
      : equals > 0
        ? word.slice(equals + 1)
        : bare
          ? null
          : (command[at + 1] ?? null);
    if (equals < 0 && !bare) at += 1;
    if (value === null) continue;
    const counted = wrapper.processes?.find((names) => names.includes(option));
    // `gpu`, `auto` and elastic ranges (`1:4`) are only known when the job runs.
    if (counted) counts.set(counted, /^\d+$/.test(value) ? Number(value) : Number.NaN);
    if (wrapper.deviceList?.includes(option)) program.worldSize = countDevices(value);
  }
  if (wrapper.processes) {
    const [first] = wrapper.processes;
    if (first && !counts.has(first)) counts.set(first, wrapper.processesDefault ?? Number.NaN);
    const product = [...counts.values()].reduce((a, b) => a * b, 1);
    if (Number.isInteger(product)) program.worldSize = product;
  }
  if (at >= command.length) {
    program.argsStart = command.length;
    return null;
  }
  if (!wrapper.script || mode === 'executable') {
    // `uv run train.py` and `pixi run train.py` start the script with the environment's own Python.
    if (/\.py$/.test(command[at] as string) && !isExecutableScript(command[at] as string)) {
      program.kind = 'python';
      setScript(command, at, cwd, program);
      return null;
    }
    return at;
  }
  program.kind = 'python';
  if (mode === 'module') {
    program.module = command[at] as string;
    program.argsStart = at + 1;
  } else setScript(command, at, cwd, program);
  return null;
}

function isExecutableScript(word: string): boolean {
  return word.startsWith('/') || word.startsWith('./');
}

function countDevices(text: string): number | null {
  // DeepSpeed: `worker-0@worker-1:0,2`; a host without a list takes all of its devices, and that cannot be counted here.
  let count = 0;
  for (const host of text.split('@')) {
    const list = host.split(':')[1];
    if (list === undefined) return null;
    count += list.split(',').length;
  }
  return count;
}

function setScript(command: readonly string[], index: number, cwd: string, program: Program): void {
  const path = command[index] as string;
  const absolute = resolve(cwd, path);
  program.script = { index, path, absolute, stem: stemOf(path) };
  program.argsStart = index + 1;
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

function executableOf(word: string, cwd: string): string {
  return word.includes('/') ? resolve(cwd, word) : word;
}

export function stemOf(path: string): string {
  return basename(path).replace(/\.[A-Za-z0-9]+$/, '') || 'job';
}
