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
): number | null {
  const path = named ?? rule?.default.map((template) => inPlace(template, env)).find((one) => one !== null);
  if (!rule || !path) return null;
  const text = readText(resolve(cwd, path));
  if (text === null) return null;
  if (rule.key === undefined) return text.split('\n').filter((line) => /^\s*[^\s#]/.test(line)).length || null;
  const format = formatOf(path);
  if (format === undefined || !isReadable(format, text)) return null;
  return Number(openConfig({ format, text }).get(rule.key)) || null;
}

/** A path with its variable filled in; null: that is not set. */
function inPlace(template: string, env: NodeJS.ProcessEnv): string | null {
  const [, name, rest] = /^\$(\w+)(.*)$/.exec(template) ?? [];
  if (name === undefined) return template;
  return env[name] ? `${env[name]}${rest}` : null;
}
