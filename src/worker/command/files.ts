import { basename, join, resolve } from 'node:path';
import { writeWhole } from '../../common/durable-file.js';
import { privateFolder } from '../../common/private-folder.js';
import { readText } from '../../common/regular-file.js';
import { holds, type Scene } from '../presets/match.js';
import type { FileRule, Preset } from '../presets/schema.js';
import { findOption } from './argv.js';
import { formatOf, isReadable, openConfig } from './config-file.js';
import { seenBehind } from './program.js';
import type { PlanFile } from './types.js';

/** Where the arguments name a file of this rule: index in `args`, and what precedes the path in that argument. */
export function locateFile(
  args: readonly string[],
  rule: FileRule,
): { index: number; prefix: string; path: string } | null {
  const named = findOption(args, {
    flags: rule.flags,
    keys: rule.keys,
    dashes: 'any',
    takes: 'value',
    join: 'space',
    brackets: false,
    add: [],
    yes: '',
    no: '',
  }).at(-1);
  if (named && named.value !== null) {
    return named.span === 2
      ? { index: named.index + 1, prefix: '', path: named.value }
      : { index: named.index, prefix: named.prefix ?? '', path: named.value };
  }
  if (!rule.positional || (rule.only && args.length !== 1)) return null;
  const fits = (arg: string) => !arg.startsWith('-') && rule.positional?.some((end) => arg.endsWith(end));
  // If several are read, the last one wins.
  const index = rule.precedence === 'position' ? args.findLastIndex(fits) : args.findIndex(fits);
  return index < 0 ? null : { index, prefix: '', path: args[index] as string };
}

/** The configuration files that the command names and that can be read, in the preset's order. */
export function findFiles(preset: Preset, scene: Scene, cwd: string): PlanFile[] {
  const files: PlanFile[] = [];
  for (const [name, rule] of Object.entries(preset.files)) {
    if (!holds(rule.when, scene)) continue;
    let path: string | null = null;
    let index: number | null = null;
    let within: PlanFile['within'] = null;
    if (rule.script) path = scene.program.script?.path ?? null;
    else if (rule.within) {
      const outer = files.find((f) => f.name === rule.within?.file);
      const value = outer ? openConfig(outer).get(rule.within.path) : null;
      if (typeof value === 'string') {
        path = value;
        within = rule.within;
      }
    } else {
      const place = locateFile(scene.args, rule);
      path = place?.path ?? (rule.env ? (seenBehind(scene.program, scene.env)[rule.env] ?? null) : null);
      index = place?.index ?? null;
    }
    if (path === null) continue;
    const absolute = resolve(cwd, path);
    const format = formatOf(path);
    const text = format === undefined ? null : readText(absolute);
    if (format !== undefined && text !== null && isReadable(format, text))
      files.push({ name, written: path, absolute, format, index, within, text });
  }
  return files;
}

/** Writes a private copy (0600) into the launch folder, which it makes, whole or not at all; returns its path. */
export function writeCopy(launchDir: string, file: PlanFile, text: string): string {
  const path = join(privateFolder(launchDir), `oomtune-${file.name}-${basename(file.absolute)}`);
  writeWhole(path, text);
  return path;
}
