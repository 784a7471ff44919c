import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { ZodType } from 'zod';
import { readConfig } from '../../common/config.js';
import { OomtuneError } from '../../common/errors.js';
import { PACKAGE_ROOT } from '../../common/home.js';
import { type Outline, OutlineSchema, type Preset, PresetSchema } from './schema.js';

export const PRESET_FOLDER = join(PACKAGE_ROOT, 'config', 'presets');

/** A preset's file, of which no more was read than tells whether it is the one. */
export interface PresetFile extends Outline {
  path: string;
}

const loaded = new Map<string, PresetFile[]>();

/** All presets of a folder, the most specific first. Throws OOMTUNE_INTERNAL that names file and field when one is malformed. */
export function presetFiles(folder: string = PRESET_FOLDER): PresetFile[] {
  const known = loaded.get(folder);
  if (known) return known;
  const files = readdirSync(folder)
    .filter((file) => file.endsWith('.yaml'))
    .sort()
    .map((file) => ({ ...checked(OutlineSchema, join(folder, file)), path: join(folder, file) }))
    .sort((a, b) => b.priority - a.priority || a.name.localeCompare(b.name));
  loaded.set(folder, files);
  return files;
}

/** The whole preset. Throws OOMTUNE_INTERNAL that names file and field when it is malformed. */
export function readPreset({ path }: PresetFile): Preset {
  return checked(PresetSchema, path);
}

function checked<T>(schema: ZodType<T>, path: string): T {
  const result = schema.safeParse(readConfig(path));
  if (!result.success) {
    const [issue] = result.error.issues;
    throw new OomtuneError(
      'OOMTUNE_INTERNAL',
      `The preset ${path} is malformed at ${issue?.path.join('.') || 'its top'}: ${issue?.message}.`,
      'Reinstall oomtune, or correct the file.',
    );
  }
  return result.data;
}

/** The preset of that name; throws OOMTUNE_USAGE with the list of known ones. */
export function presetNamed(name: string): PresetFile {
  const files = presetFiles();
  const file = files.find((one) => one.name === name);
  if (file) return file;
  const names = files.map((one) => one.name).sort();
  throw new OomtuneError(
    'OOMTUNE_USAGE',
    `There is no preset "${name}".`,
    `Use auto, none, or one of: ${names.join(', ')}.`,
  );
}
