import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { readConfig } from '../../common/config.js';
import { OomtuneError } from '../../common/errors.js';
import { PACKAGE_ROOT } from '../../common/home.js';
import { type Preset, PresetSchema } from './schema.js';

export const PRESET_FOLDER = join(PACKAGE_ROOT, 'config', 'presets');

const loaded = new Map<string, Preset[]>();

/** All presets of a folder, the most specific first. Throws OOMTUNE_INTERNAL that names file and field when one is malformed. */
export function loadPresets(folder: string = PRESET_FOLDER): Preset[] {
  const known = loaded.get(folder);
  if (known) return known;
  const presets = readdirSync(folder)
    .filter((file) => file.endsWith('.yaml'))
    .sort()
    .map((file) => loadPreset(join(folder, file)))
    .sort((a, b) => b.priority - a.priority || a.name.localeCompare(b.name));
  loaded.set(folder, presets);
  return presets;
}

function loadPreset(path: string): Preset {
  const result = PresetSchema.safeParse(readConfig(path));
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
export function presetNamed(name: string, folder?: string): Preset {
  const presets = loadPresets(folder);
  const preset = presets.find((p) => p.name === name);
  if (preset) return preset;
  const names = presets.map((p) => p.name).sort();
  throw new OomtuneError(
    'OOMTUNE_USAGE',
    `There is no preset "${name}".`,
    `Use auto, none, or one of: ${names.join(', ')}.`,
  );
}
