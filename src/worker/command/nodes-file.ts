import { resolve } from 'node:path';
import { readText } from '../../common/regular-file.js';
import { formatOf, isReadable, openConfig } from './config-file.js';
import type { Wrapper } from './launchers.js';

/** Machines by the file that a launcher reads them from, `named` by its option or the default; null: none, or it cannot be read. */
export function nodesInFile(
  rule: Wrapper['nodes_file'],
  named: string | null,
  cwd: string,
  env: NodeJS.ProcessEnv,
): { count: number; path: string } | null {
  const path = named ?? rule?.default.map((template) => inPlace(template, env)).find((one) => one !== null);
  if (!rule || !path) return null;
  const text = readText(resolve(cwd, path));
  if (text === null) return null;
  const count = rule.key === undefined ? linesIn(text) : valueIn(path, text, rule.key);
  return count > 0 ? { count, path } : null;
}

/** But for empty ones and comments. */
const linesIn = (text: string): number => text.split('\n').filter((line) => /^\s*[^\s#]/.test(line)).length;

function valueIn(path: string, text: string, key: string): number {
  const format = formatOf(path);
  if (format === undefined || !isReadable(format, text)) return Number.NaN;
  return Number(openConfig({ format, text }).get(key));
}

/** A path with its variable filled in; null: that is not set. */
function inPlace(template: string, env: NodeJS.ProcessEnv): string | null {
  const [, name, rest] = /^\$(\w+)(.*)$/.exec(template) ?? [];
  if (name === undefined) return template;
  return env[name] ? `${env[name]}${rest}` : null;
}
