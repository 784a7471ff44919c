import { realpathSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { findExecutable } from '../../common/executable.js';
import { namesIn } from '../../common/regular-file.js';

/** A Python distribution's version by its *.dist-info folder, without starting the interpreter; null: not found. */
export function installedVersion(
  distribution: string,
  interpreter: string | null,
  env: NodeJS.ProcessEnv,
): string | null {
  const wanted = normal(distribution);
  for (const folder of sitePackages(interpreter, env)) {
    for (const name of namesIn(folder)) {
      const match = /^(.+?)-([0-9][^-]*)\.(?:dist-info|egg-info)$/.exec(name);
      if (match && normal(match[1] as string) === wanted) return match[2] as string;
    }
  }
  return null;
}

function normal(name: string): string {
  return name.toLowerCase().replace(/[-_.]+/g, '-');
}

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
export function compareVersions(a: string, b: string): number {
  const numbers = (text: string) => (/^[0-9.]*/.exec(text)?.[0] ?? '').split('.').map(Number);
  const left = numbers(a);
  const right = numbers(b);
  for (let i = 0; i < Math.max(left.length, right.length); i += 1) {
    const difference = (left[i] ?? 0) - (right[i] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}
