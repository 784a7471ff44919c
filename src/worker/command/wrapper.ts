import type { Wrapper } from './launchers.js';
import { setScript } from './script.js';
import type { Program } from './types.js';

/** Reads the words of a launcher; returns the index of what it starts, or null when that is the program itself. */
export function readWrapper(
  command: readonly string[],
  from: number,
  wrapper: Wrapper,
  cwd: string,
  program: Program,
): number | null {
  let left = wrapper.arguments;
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
    if (wrapper.module.includes(option)) mode = 'module';
    if (wrapper.executable.includes(option)) mode = 'executable';
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
    const counted = wrapper.processes.find((names) => names.includes(option));
    // `gpu`, `auto` and elastic ranges (`1:4`) are only known when the job runs.
    if (counted) counts.set(counted, /^\d+$/.test(value) ? Number(value) : Number.NaN);
    // `2-4`: at least two
    if (wrapper.nodes.includes(option)) program.nodes = Number.parseInt(value, 10) || null;
    if (wrapper.device_list.includes(option)) program.worldSize = countDevices(value);
  }
  const [first] = wrapper.processes;
  if (first) {
    if (!counts.has(first)) counts.set(first, wrapper.processes_default ?? Number.NaN);
    const product = [...counts.values()].reduce((a, b) => a * b, 1);
    if (Number.isInteger(product)) program.worldSize = product;
    else program.worldSize ??= wrapper.processes_variable ?? null;
  }
  program.nodes ??= wrapper.nodes_variable ?? null;
  if (at >= command.length) {
    program.argsStart = command.length;
    return null;
  }
  if (!wrapper.script || mode === 'executable') {
    // `uv run train.py` and `pixi run train.py` start the script with the environment's own Python.
    const word = command[at] as string;
    if (word.endsWith('.py') && !/^\.?\//.test(word)) {
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
