import { readFileSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, relative } from 'node:path';
import type * as Yaml from 'yaml';
import { PACKAGE_ROOT } from './home.js';

const require = createRequire(import.meta.url);

/** The yaml library, loaded on first use: most commands need none of its eighty files. */
export const yaml = (): typeof Yaml => require('yaml') as typeof Yaml;

const FOLDER = join(PACKAGE_ROOT, 'config');
/** The same files as JSON, made by the build: parsing all presets' YAML takes a tenth of a second. */
const COMPILED = join(PACKAGE_ROOT, 'dist', 'config');

/** Reads a YAML file; from the build's JSON where it is in `config/` and has not changed. Throws the parser's error. */
export function readConfig(path: string): unknown {
  const inside = relative(FOLDER, path);
  if (!inside.startsWith('..')) {
    const compiled = join(COMPILED, inside.replace(/\.yaml$/, '.json'));
    const made = statSync(compiled, { throwIfNoEntry: false });
    if (made && made.mtimeMs >= statSync(path).mtimeMs) return JSON.parse(readFileSync(compiled, 'utf8'));
  }
  return yaml().parse(readFileSync(path, 'utf8'));
}
