import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { ZodType } from 'zod';
import { readConfig } from '../../common/config.js';
import { OomtuneError, usageError } from '../../common/errors.js';
import { PACKAGE_ROOT } from '../../common/home.js';
import { complaint } from '../../contract/fields.js';
import { type Outline, OutlineSchema, type Preset, PresetSchema } from './schema.js';

const FOLDER = join(PACKAGE_ROOT, 'config', 'presets');

/** A preset's file, checked only as far as recognising needs. */
export interface PresetFile extends Outline {
  path: string;
  said: unknown;
}

let loaded: PresetFile[] | undefined;

/** All presets, the most specific first. Throws OOMTUNE_INTERNAL for an invalid one, with file and field. */
export function presetFiles(): PresetFile[] {
  loaded ??= readdirSync(FOLDER)
    .filter((file) => file.endsWith('.yaml'))
    .map((file) => {
      const path = join(FOLDER, file);
      const said = readConfig(path);
      return { ...checked(OutlineSchema, path, said), path, said };
    })
    .sort((a, b) => b.priority - a.priority || a.name.localeCompare(b.name));
  return loaded;
}

/** The whole preset. Throws OOMTUNE_INTERNAL if it is invalid, with file and field. */
export const readPreset = ({ path, said }: PresetFile): Preset => checked(PresetSchema, path, said);

function checked<T>(schema: ZodType<T>, path: string, said: unknown): T {
  const result = schema.safeParse(said);
  if (!result.success) {
    throw new OomtuneError(
      'OOMTUNE_INTERNAL',
      `The preset ${path} is malformed at ${complaint(result.error, 'its top')}.`,
      'Reinstall oomtune, or correct the file.',
    );
  }
  return result.data;
}

/** The preset of that name. Throws OOMTUNE_USAGE with the known names. */
export function presetNamed(name: string): PresetFile {
  const files = presetFiles();
  const file = files.find((one) => one.name === name);
  if (file) return file;
  const names = files.map((one) => one.name).sort();
  throw usageError(`There is no preset "${name}".`, `Use auto, none, or one of: ${names.join(', ')}.`);
}
