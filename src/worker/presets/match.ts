import { existsSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { readText } from '../../common/regular-file.js';
import type { Program } from '../command/types.js';
import type { Outline, Recognise, When } from './schema.js';
import { compareVersions, installedVersion } from './versions.js';

/** What conditions test. */
export interface Scene {
  program: Program;
  /** The program's own arguments. */
  args: readonly string[];
  /** Text of the script; null when it cannot be read. */
  scriptText: string | null;
  env: NodeJS.ProcessEnv;
  cwd: string;
}

/** Whether a condition holds; none always does. */
export function holds(when: When | undefined, scene: Scene): boolean {
  if (!when) return true;
  const { scriptText } = scene;
  if (when.script !== undefined && scriptText !== null && !new RegExp(when.script, 'm').test(scriptText)) return false;
  if (when.script_not !== undefined && scriptText !== null && new RegExp(when.script_not, 'm').test(scriptText))
    return false;
  const line = scene.args.join(' ');
  if (when.arguments !== undefined && !new RegExp(when.arguments).test(line)) return false;
  if (when.arguments_not !== undefined && new RegExp(when.arguments_not).test(line)) return false;
  if (when.package !== undefined) {
    const interpreter = scene.program.executable ?? 'python3';
    let version: string | null = null;
    for (const name of when.package.split('|')) version ??= installedVersion(name, interpreter, scene.env);
    if (version === null) return when.before === undefined;
    if (when.since !== undefined && compareVersions(version, when.since) < 0) return false;
    if (when.before !== undefined && compareVersions(version, when.before) >= 0) return false;
  }
  return sourceHolds(when.source, scene);
}

function sourceHolds(rule: When['source'], scene: Scene): boolean {
  if (!rule) return true;
  const { script } = scene.program;
  const folders = script ? [scene.cwd, dirname(script.absolute)] : [scene.cwd];
  const texts = folders.flatMap((folder) => rule.files.flatMap((file) => readText(join(folder, file)) ?? []));
  if (texts.length === 0) return rule.assumed;
  const has = (pattern: string) => texts.some((text) => new RegExp(pattern, 'm').test(text));
  return (rule.text === undefined || has(rule.text)) && (rule.not === undefined || !has(rule.not));
}

/** The first preset, in order of priority, that recognises the program; null: none. */
export function matchPreset<T extends Outline>(presets: readonly T[], scene: Scene): T | null {
  return presets.find((preset) => preset.recognise.some((rule) => recognises(rule, scene))) ?? null;
}

function recognises(rule: Recognise, scene: Scene): boolean {
  const { program, args, scriptText } = scene;
  if (rule.script || rule.module || rule.console) {
    const file = program.script ? basename(program.script.path) : null;
    const byScript = file !== null && (rule.script?.some((glob) => globMatches(glob, file)) ?? false);
    const byModule = program.module !== null && (rule.module?.includes(program.module) ?? false);
    // A console script given by its path has a Python shebang and counts as a script without ".py".
    const name = program.name ?? (file?.includes('.') ? null : file);
    const byConsole = name !== null && (rule.console?.includes(name) ?? false);
    if (!byScript && !byModule && !byConsole) return false;
  }
  if (rule.verb) {
    const verb = args.find((arg) => !arg.startsWith('-') && !arg.includes('='));
    if (verb === undefined || !rule.verb.includes(verb)) {
      // ultralytics also takes its verb as one of several words.
      if (!args.some((arg) => rule.verb?.includes(arg))) return false;
    }
  }
  if (rule.beside) {
    const { script } = program;
    if (!script || !rule.beside.some((file) => existsSync(join(dirname(script.absolute), file)))) return false;
  }
  if (rule.text !== undefined) {
    if (scriptText === null) {
      if (!rule.unread) return false;
    } else if (!new RegExp(rule.text, 'm').test(scriptText)) return false;
  }
  return rule.arguments === undefined || new RegExp(rule.arguments).test(args.join(' '));
}

function globMatches(glob: string, name: string): boolean {
  const pattern = glob.split('*').map((part) => part.replace(/[.+?^${}()|[\]\\]/g, '\\$&'));
  return new RegExp(`^${pattern.join('.*')}$`).test(name);
}
