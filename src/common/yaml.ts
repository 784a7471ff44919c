import { createRequire } from 'node:module';
import type * as Yaml from 'yaml';

const require = createRequire(import.meta.url);

/** The yaml library, loaded on first use: few starts of the program need any of its eighty files. */
export function yaml(): typeof Yaml {
  return require('yaml') as typeof Yaml;
}
