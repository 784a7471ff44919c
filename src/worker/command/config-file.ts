import { extname } from 'node:path';
import { parse as parseToml, TomlError, type TomlTable } from 'smol-toml';
import type { Document } from 'yaml';
import { yaml } from '../../common/config.js';
import type { PlanFile } from './types.js';

export type Scalar = string | number | boolean | null;

/** By the ending of a file's name. */
const FORMATS: Record<string, PlanFile['format']> = {
  '.yaml': 'yaml',
  '.yml': 'yaml',
  '.json': 'json',
  '.toml': 'toml',
  '.py': 'python',
};

/** Undefined: no reader of ours takes it. */
export const formatOf = (path: string): PlanFile['format'] | undefined => FORMATS[extname(path).toLowerCase()];

/** A file that no reader of its format takes is left alone: the entry point will say what is wrong with it. */
export function isReadable(format: PlanFile['format'], text: string): boolean {
  if (format === 'python') return true;
  if (format === 'toml') return parsedToml(text) !== null;
  const { contents, errors } = yaml().parseDocument(text);
  return errors.length === 0 && yaml().isMap(contents);
}

/** A configuration file's text, open for reading and for changes that leave all the rest of it as it stands. */
export interface OpenConfig {
  /** undefined: not there. */
  get(path: string): Scalar | undefined;
  set(path: string, value: Scalar): void;
  remove(path: string): void;
  text(): string;
  /** Everything in it as plain data, for a digest. */
  data(): unknown;
}

export function openConfig(file: Pick<PlanFile, 'format' | 'text'>): OpenConfig {
  return { yaml: openTree, json: openTree, toml: openToml, python: openPython }[file.format](file);
}

/** Changes values in the text: a serializer could turn `1.0e-4` into `1e-4`, a string to Python's YAML. Reads JSON as YAML, too. */
function openTree(file: Pick<PlanFile, 'format' | 'text'>): OpenConfig {
  let { text } = file;
  const removed: string[] = [];
  const keys = (path: string) => path.split('.');
  const parsed = () => {
    const document = yaml().parseDocument(text);
    for (const path of removed) if (document.hasIn(keys(path))) document.deleteIn(keys(path));
    return document;
  };
  return {
    get(path) {
      const node = parsed().getIn(keys(path), true);
      if (!yaml().isScalar(node)) return undefined;
      return typeof node.value === 'bigint' ? Number(node.value) : (node.value as Scalar);
    },
    set(path, value) {
      const document = parsed();
      const splice = placeOf(document, text, keys(path), JSON.stringify(value));
      if (splice) text = text.slice(0, splice.from) + splice.text + text.slice(splice.to);
      else {
        document.setIn(keys(path), value);
        text = document.toString({ lineWidth: 0 });
      }
    },
    remove: (path) => {
      removed.push(path);
    },
    text: () => (removed.length > 0 ? parsed().toString({ lineWidth: 0 }) : text),
    data: () => parsed().toJS(),
  };
}

/** Where in the text a value goes: over the old one, or behind the last pair of its map. null: its map is not there. */
function placeOf(
  document: Document,
  text: string,
  keys: string[],
  value: string,
): { from: number; to: number; text: string } | null {
  const old = document.getIn(keys, true);
  if (yaml().isScalar(old) && old.range) {
    const [from, to] = old.range;
    return { from, to, text: from === to && text[from - 1] === ':' ? ` ${value}` : value };
  }
  const parent = keys.length > 1 ? document.getIn(keys.slice(0, -1), true) : document.contents;
  if (!yaml().isMap(parent) || old !== undefined) return null;
  const last = parent.items.at(-1);
  const key = keys.at(-1) as string;
  if (!last || !yaml().isNode(last.key) || !last.key.range) return null;
  const lineStart = text.lastIndexOf('\n', last.key.range[0]) + 1;
  const indent = /^[ \t]*/.exec(text.slice(lineStart))?.[0] ?? '';
  const end = yaml().isNode(last.value) && last.value.range ? last.value.range : last.key.range;
  if (parent.flow) {
    const alone = text.slice(lineStart, last.key.range[0]).trim() === '';
    return { from: end[1], to: end[1], text: `,${alone ? `\n${indent}` : ' '}${JSON.stringify(key)}: ${value}` };
  }
  // After the whole last pair, with its comment and line end.
  const at = end[2];
  return { from: at, to: at, text: `${text[at - 1] === '\n' ? '' : '\n'}${indent}${key}: ${value}\n` };
}

type Read = Pick<OpenConfig, 'set' | 'text'>;

/** TOML and Python files are only read: what is changed goes into the arguments. */
const onlyRead = ({ format, text }: Pick<PlanFile, 'format' | 'text'>): Read => ({
  set: () => {
    throw new TypeError(`${format} files are only read`);
  },
  text: () => text,
});

/** null: it is no TOML. */
function parsedToml(text: string): TomlTable | null {
  try {
    return parseToml(text, { integersAsBigInt: 'asNeeded' });
  } catch (error) {
    if (error instanceof TomlError) return null;
    throw error;
  }
}

function openToml(file: Pick<PlanFile, 'format' | 'text'>): OpenConfig {
  const data = parsedToml(file.text) ?? {};
  /** The table that holds the path's last key, and that key; an empty one where there is none. */
  const place = (path: string): { table: Record<string, unknown>; key: string } => {
    const keys = path.split('.');
    const key = keys.pop() as string;
    const table = keys.reduce<unknown>((outer, inner) => Object(outer)[inner], data);
    return { table: Object(table), key };
  };
  return {
    ...onlyRead(file),
    get(path) {
      const { table, key } = place(path);
      const value = table[key];
      if (typeof value === 'bigint') return Number(value);
      return typeof value === 'object' ? undefined : (value as Scalar | undefined);
    },
    remove(path) {
      const { table, key } = place(path);
      delete table[key];
    },
    data: () => data,
  };
}

/** Single-line assignments of plain values, at module level. */
function openPython(file: Pick<PlanFile, 'format' | 'text'>): OpenConfig {
  const lines = file.text.split('\n');
  const values = new Map<string, Scalar>();
  for (const line of lines) {
    const [, name, source] = /^(\w+)\s*(?::[^=]+)?=\s*([^=].*)$/.exec(line) ?? [];
    const value = source === undefined ? undefined : plainValue(source);
    if (name !== undefined && value !== undefined) values.set(name, value);
  }
  const removed: string[] = [];
  return {
    ...onlyRead(file),
    get: (path) => values.get(path),
    remove: (path) => {
      removed.push(path.split('.').at(-1) as string);
    },
    data: () => lines.filter((line) => !removed.some((key) => new RegExp(`^\\s*${key}\\s*=`).test(line))).join('\n'),
  };
}

function plainValue(source: string): Scalar | undefined {
  const text = source.replace(/\s+#.*$/, '').trim();
  const quoted = /^(['"])([^'"]*)\1$/.exec(text);
  if (quoted) return quoted[2] as string;
  if (/^(?:true|false)$/i.test(text)) return /^t/i.test(text);
  // `gradient_accumulation_steps = 5 * 8`
  if (/^\d[\d_]*(?:\s*\*\s*\d[\d_]*)*$/.test(text))
    return text.split('*').reduce((product, part) => product * Number(part.trim().replaceAll('_', '')), 1);
  const number = Number(text);
  return text !== '' && Number.isFinite(number) ? number : undefined;
}

/** Stable text of plain data: keys sorted. */
export const canonical = (data: unknown): string => yaml().stringify(data ?? null, { sortMapEntries: true });
