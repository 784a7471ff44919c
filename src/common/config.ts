import { readFileSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, relative } from 'node:path';
import type * as Yaml from 'yaml';
import { PACKAGE_ROOT } from './home.js';

const require = createRequire(import.meta.url);

/** The yaml library, loaded on first use: few starts of the program need any of its eighty files. */
export function yaml(): typeof Yaml {
  return require('yaml') as typeof Yaml;
}

const FOLDER = join(PACKAGE_ROOT, 'config');
/** The same files as JSON, made by the build: to parse the YAML of all presets takes a tenth of a second at each start. */
const COMPILED = join(PACKAGE_ROOT, 'dist', 'config');

/** What a YAML file says; one in `config/` that was not changed since the build is read as JSON. Throws what the parser throws. */
export function readConfig(path: string): unknown {
  const inside = relative(FOLDER, path);
  if (!inside.startsWith('..')) {
    const compiled = join(COMPILED, inside.replace(/\.yaml$/, '.json'));
    const made = statSync(compiled, { throwIfNoEntry: false });
    if (made && made.mtimeMs >= statSync(path).mtimeMs) return JSON.parse(readFileSync(compiled, 'utf8'));
  }
  return yaml().parse(readFileSync(path, 'utf8'));
}
