import { readFileSync, statSync } from 'node:fs';
import { join, relative } from 'node:path';
import { PACKAGE_ROOT } from './home.js';
import { yaml } from './yaml.js';

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
