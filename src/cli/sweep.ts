import { usageError } from '../common/errors.js';
import { VALUE_NAMES } from '../worker/command/placeholders.js';

const MOST = 10_000;
const NAME = /^[A-Za-z_][A-Za-z0-9_-]*$/;

/** The value of each placeholder for one task of `--sweep` or `--array`. */
interface Task {
  /** By placeholder. */
  values: Record<string, string>;
  /** Of `--array`; null: there is none. */
  index: number | null;
  /** What its name ends with: `lr-1e-3-seed-0`. */
  suffix: string;
}

interface Sweep {
  tasks: Task[];
  /** How many of them may run at a time; null: all. */
  atOnce: number | null;
}

interface Dimension {
  name: string;
  values: string[];
}

/** The jobs of `--array 0-59%4` or of every combination of `--sweep lr=1e-3,1e-4`; null: neither. Throws OOMTUNE_USAGE. */
export function sweepOf(array: unknown, sweeps: unknown, command: readonly string[]): Sweep | null {
  const dimensions = (Array.isArray(sweeps) ? sweeps.map(String) : []).map(dimensionOf);
  const given = typeof array === 'string' ? arrayOf(array) : null;
  if (given === null && dimensions.length === 0) return null;
  for (const [at, { name }] of dimensions.entries()) {
    if (dimensions.findIndex((one) => one.name === name) !== at)
      throw usageError(`--sweep ${name} is given twice.`, 'Write all its values into one, separated by commas.');
    if (!command.some((word) => tokens(word).some((one) => one.name === name)))
      throw usageError(
        `The command holds no {${name}}, so that --sweep ${name} would run the same again and again.`,
        `Write {${name}} where the value goes: --${name} {${name}}.`,
      );
  }
  const all: Dimension[] = [
    ...(given === null ? [] : [{ name: 'index', values: given.indices.map(String) }]),
    ...dimensions,
  ];
  const count = all.reduce((product, { values }) => product * values.length, 1);
  if (count > MOST) throw usageError(`That makes ${count} jobs.`, `Submit at most ${MOST} at a time.`);
  let combinations: Record<string, string>[] = [{}];
  for (const { name, values } of all)
    combinations = combinations.flatMap((before) => values.map((value) => ({ ...before, [name]: value })));
  const tasks = combinations.map((values) => ({
    values,
    index: given === null ? null : Number(values.index),
    suffix: Object.entries(values)
      .map(([name, value]) => plain(name === 'index' && given !== null ? value : `${name}-${value}`))
      .join('-'),
  }));
  return { tasks, atOnce: given?.atOnce ?? null };
}

/** A task's command: `{lr}` is filled in, the rest stays. */
export function commandOf(command: readonly string[], { values }: Task): string[] {
  return command.map((word) => {
    let text = '';
    let at = 0;
    for (const { start, end, name } of tokens(word)) {
      const value = values[name];
      if (value === undefined) continue;
      text += word.slice(at, start) + value;
      at = end;
    }
    return text + word.slice(at);
  });
}

/** Not the shell's `${lr}`, nor `{{lr}}`, which stands for `{lr}`. */
function tokens(word: string): { start: number; end: number; name: string }[] {
  return [...word.matchAll(/(?<![{$])\{([A-Za-z_][A-Za-z0-9_-]*)\}(?!\})/g)].map((match) => ({
    start: match.index,
    end: match.index + match[0].length,
    name: match[1] as string,
  }));
}

function dimensionOf(text: string): Dimension {
  const [, name = text, list = ''] = /^([^=]*)=(.*)$/s.exec(text) ?? [];
  const wrong = (what: string) =>
    usageError(`Expected --sweep to be ${what}, got "${text}".`, 'Write --sweep lr=1e-3,1e-4 or --sweep seed=0..4.');
  if (!NAME.test(name) || list === '') throw wrong('a name and its values');
  if (name === 'index' || (VALUE_NAMES as readonly string[]).includes(name))
    throw wrong(`of another name than {${name}}, which oomtune fills in`);
  const range = /^(-?\d+)\.\.(-?\d+)$/.exec(list);
  if (range === null) {
    const values = list.split(',');
    const twice = values.find((value, at) => values.indexOf(value) !== at);
    if (twice !== undefined) throw wrong(`values that differ ("${twice}" is there twice)`);
    return { name, values };
  }
  const [first, last] = [Number(range[1]), Number(range[2])];
  if (last < first) throw wrong('a range that rises');
  if (last - first >= MOST) throw wrong(`at most ${MOST.toLocaleString('en')} values`);
  return { name, values: Array.from({ length: last - first + 1 }, (_, n) => String(first + n)) };
}

function arrayOf(text: string): { indices: number[]; atOnce: number | null } {
  const match = /^(\d{1,9}(?:-\d{1,9})?(?:,\d{1,9}(?:-\d{1,9})?)*)(?:%(\d{1,9}))?$/.exec(text);
  const atOnce = match?.[2] === undefined ? null : Number(match[2]);
  const wrong = usageError(
    `Expected --array to be indices such as 0-59, 1,3,7-9 or 0-59%4, got "${text}".`,
    'What follows % is how many of them may run at a time.',
  );
  if (match === null || atOnce === 0) throw wrong;
  const indices = new Set<number>();
  for (const part of (match[1] as string).split(',')) {
    const [first, last = first] = part.split('-').map(Number) as [number, number?];
    if (last < first || last - first >= MOST) throw wrong;
    for (let index = first; index <= last; index += 1) indices.add(index);
  }
  return { indices: [...indices], atOnce };
}

const plain = (text: string): string => text.replace(/[^A-Za-z0-9._+-]+/g, '-').replace(/^-+|-+$/g, '');
