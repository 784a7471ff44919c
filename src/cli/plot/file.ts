import { extname } from 'node:path';
import { usageError } from '../errors.js';
import { checkWritable } from '../whole-file.js';

/** The file that `--plot` names; null: none. Throws OOMTUNE_USAGE for one that could not be written in the end. */
export function plotFile(value: unknown): string | null {
  if (value === undefined) return null;
  const file = String(value);
  if (extname(file).toLowerCase() !== '.svg') {
    throw usageError(
      `Expected --plot to be a file that ends in .svg, got ${JSON.stringify(file)}.`,
      'The picture is drawn as SVG, which browsers show and other programs turn into any format.',
    );
  }
  checkWritable(file, 'plot');
  return file;
}
