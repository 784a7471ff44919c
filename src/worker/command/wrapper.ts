import { basename } from 'node:path';
import { type Wrapper, wrapperOf } from './launchers.js';
import { nodesInFile } from './nodes-file.js';
import { isPython, setScript } from './script.js';
import type { Program } from './types.js';

/** Reads the words of a launcher; returns the index of what it starts, or null when that is the program itself. */
export function readWrapper(
  command: readonly string[],
  from: number,
  wrapper: Wrapper,
  cwd: string,
  program: Program,
  env: NodeJS.ProcessEnv,
): number | null {
  let left = wrapper.arguments;
  let verb = wrapper.verb;
  let mode: 'script' | 'module' | 'executable' = 'script';
  const counts: number[] = [];
  let world: number | null | undefined; // undefined: it says nothing of it
  let nodes: number | null = null;
  let nodesBy: string | null = null;
  let file: string | null = null;
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
    const { option, attached } = readOption(word, wrapper);
    if (wrapper.module.includes(option)) mode = 'module';
    if (wrapper.executable.includes(option)) mode = 'executable';
    const bare = wrapper.valued ? !wrapper.valued.includes(option) : (wrapper.bare?.includes(option) ?? !wrapper.bare);
    const value = attached ?? (bare ? null : (command[at + 1] ?? null));
    if (attached === null && !bare) at += 1;
    if (value === null) continue;
    const counted = wrapper.processes.findIndex((names) => names.includes(option));
    if (counted >= 0) counts[counted] = countOf(value);
    if ([...wrapper.nodes, ...wrapper.device_list].includes(option)) nodesBy = option;
    if (wrapper.nodes.includes(option)) nodes = leastOf(value);
    if (wrapper.nodes_file?.option.includes(option)) file = value;
    if (wrapper.device_list.includes(option)) {
      world = countDevices(value);
      nodes = value.split('@').length;
    }
  }
  const variables = hasUnreadCount(command, at, wrapper) ? {} : env;
  for (const [index, name] of wrapper.processes_variables.entries()) {
    const value = variables[name];
    if (value) counts[index] ??= countOf(value);
  }
  if (nodes === null) {
    const found = nodesInFile(wrapper.nodes_file, file, cwd, env);
    const counted = wrapper.processes.findIndex((names) => names.some((name) => wrapper.nodes.includes(name)));
    if (found !== null && counted >= 0) counts[counted] ??= found.count;
    nodes = found?.count ?? null;
    nodesBy = found?.path ?? wrapper.nodes_variable ?? null;
  }
  if (wrapper.processes.length > 0) {
    counts[0] ??= wrapper.processes_default ?? Number.NaN;
    const product = counts.reduce((a, b) => a * b, 1); // which skips what is not told
    if (Number.isInteger(product)) world = product;
    // One process is on one machine, on however many the job is.
    if (product === 1) nodes ??= 1;
  }
  nodes ??= leastOf(variables[wrapper.nodes_variable ?? ''] ?? '');
  if (world !== undefined) {
    program.worldSize = world;
    program.processesHere = world === null ? null : Math.ceil(world / (nodes ?? 1));
  }
  // One launcher inside of another is on as many for each of those that the outer one takes.
  if (nodes !== null && (nodes > 1 || program.nodes === null)) {
    program.nodes = nodes;
    const listed = nodesBy !== null && wrapper.device_list.includes(nodesBy);
    program.nodesBy = nodesBy;
    program.oneNode = listed ? `${nodesBy} HOST` : `${wrapper.nodes.at(-1)} 1`;
  }
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

/** An option by its name, and the value in the same word: `--ntasks=4`, `-n4`, `-ln4` (null: there is none). */
function readOption(word: string, wrapper: Wrapper): { option: string; attached: string | null } {
  const { valued } = wrapper;
  const letters = valued ? (/^-([a-zA-Z]+)/.exec(word)?.[1] ?? '') : '';
  for (let at = 1; at <= letters.length; at += 1) {
    const option = `-${word[at]}`;
    if (valued?.includes(option)) return { option, attached: word.slice(at + 1).replace(/^=/, '') || null };
  }
  const equals = word.indexOf('=');
  return equals > 0
    ? { option: inFull(word.slice(0, equals), wrapper), attached: word.slice(equals + 1) }
    : { option: inFull(word, wrapper), attached: null };
}

/** `--nnode` of torchrun is `--nnodes`. One that several could be is refused by the launcher itself. */
function inFull(
  option: string,
  { abbreviated, bare = [], processes, nodes, nodes_file, device_list }: Wrapper,
): string {
  const known = [...bare, ...processes.flat(), ...nodes, ...(nodes_file?.option ?? []), ...device_list];
  if (!abbreviated || !/^--./.test(option) || known.includes(option)) return option;
  return known.find((full) => full.startsWith(option)) ?? option;
}

/**
 * Whether what seems to be the program may be the value of an option that is not known here, with a count of its own behind it: a variable
 * does not tell what that count overrides.
 */
function hasUnreadCount(command: readonly string[], at: number, wrapper: Wrapper): boolean {
  const before = command[at - 1] ?? '';
  if (!/^--[^=]+$/.test(before)) return false;
  if ((wrapper.valued ?? wrapper.bare)?.includes(readOption(before, wrapper).option)) return false;
  const counts = [...wrapper.processes.flat(), ...wrapper.nodes];
  for (const word of command.slice(at)) {
    if (isPython(word) || word.endsWith('.py') || wrapperOf(basename(word))) return false;
    if (counts.includes(readOption(word, wrapper).option)) return true;
  }
  return false;
}

/** `gpu`, `auto` and elastic ranges (`1:4`) are only known when the job runs. */
const countOf = (value: string): number => (/^\d+$/.test(value) ? Number(value) : Number.NaN);

/** `2-4`, `2:4`: at least two. */
const leastOf = (value: string): number | null => Number.parseInt(value, 10) || null;

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
