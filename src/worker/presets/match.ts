import { existsSync, realpathSync } from 'node:fs';
import { basename, delimiter, dirname, join } from 'node:path';
import { findExecutable } from '../../common/executable.js';
import { namesIn, readText } from '../../common/regular-file.js';
import type { Program } from '../command/types.js';
import type { Outline, Recognise, When } from './schema.js';

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
  const { script, executable } = scene.program;
  const textsIn = (folders: string[]) =>
    folders.flatMap((folder) => rule.files.flatMap((file) => readText(join(folder, file)) ?? []));
  let texts = textsIn(script ? [scene.cwd, dirname(script.absolute)] : [scene.cwd]);
  if (texts.length === 0) texts = textsIn(sitePackages(executable ?? 'python3', scene.env));
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

/** A Python distribution's version by its *.dist-info folder, without starting the interpreter; null: not found. */
function installedVersion(distribution: string, interpreter: string | null, env: NodeJS.ProcessEnv): string | null {
  const wanted = normal(distribution);
  for (const folder of sitePackages(interpreter, env)) {
    for (const name of namesIn(folder)) {
      const match = /^(.+?)-([0-9][^-]*)\.(?:dist-info|egg-info)$/.exec(name);
      if (match && normal(match[1] as string) === wanted) return match[2] as string;
    }
  }
  return null;
}

const normal = (name: string): string => name.toLowerCase().replace(/[-_.]+/g, '-');

function sitePackages(interpreter: string | null, env: NodeJS.ProcessEnv): string[] {
  const folders = (env.PYTHONPATH ?? '').split(delimiter).filter(Boolean);
  const roots: string[] = [];
  const file = interpreter === null ? null : findExecutable(interpreter, env);
  // A virtual environment's interpreter is a link out of it: its own folder comes before the link's target.
  if (file) {
    roots.push(dirname(dirname(file)));
    try {
      roots.push(dirname(dirname(realpathSync(file))));
    } catch {
      // a dangling link has no packages
    }
  }
  if (env.VIRTUAL_ENV) roots.push(env.VIRTUAL_ENV);
  if (env.CONDA_PREFIX) roots.push(env.CONDA_PREFIX);
  for (const root of roots) {
    for (const lib of ['lib', 'lib64', 'local/lib']) {
      for (const name of namesIn(join(root, lib)).filter((n) => /^python\d/.test(n)))
        folders.push(join(root, lib, name, 'site-packages'), join(root, lib, name, 'dist-packages'));
    }
  }
  return [...new Set(folders)];
}

/** Compares release numbers: negative if `a` is older. Pre-releases and local parts are ignored. */
function compareVersions(a: string, b: string): number {
  const numbers = (text: string) => (/^[0-9.]*/.exec(text)?.[0] ?? '').split('.').map(Number);
  const left = numbers(a);
  const right = numbers(b);
  for (let i = 0; i < Math.max(left.length, right.length); i += 1) {
    const difference = (left[i] ?? 0) - (right[i] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}
