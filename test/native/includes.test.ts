import { readdirSync, readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { expect, test } from 'vitest';
import { ROOT } from '../../scripts/setup/say.mjs';

const NATIVE = join(ROOT, 'native');
const SOURCE = /\.(cpp|h)$/;
const sources = readdirSync(NATIVE, { recursive: true, encoding: 'utf8' }).filter(
  (path) => SOURCE.test(path) && !path.startsWith('test'),
);
/** A module is a header and the source of its name: `preload/cuda/device_watch`. */
const moduleOf = (path: string): string => path.replace(SOURCE, '');
const modules = new Set(sources.map(moduleOf));
/** What stands in a folder includes its own files, those of the folder above, and core's. */
function resolve(from: string, name: string): string | undefined {
  const folder = dirname(from);
  return [folder, dirname(folder), 'core']
    .map((place) => join(place, moduleOf(name)))
    .find((path) => modules.has(path));
}

const arrows = new Map<string, Set<string>>();
for (const path of sources) {
  const from = moduleOf(path);
  const to = arrows.get(from) ?? new Set();
  arrows.set(from, to);
  for (const [, name = ''] of readFileSync(join(NATIVE, path), 'utf8').matchAll(/^#include "([^"]+\.h)"/gm)) {
    const found = resolve(path, name);
    // core's budget_gate.h and the file's own header are the common case; what is not ours is the system's
    if (found !== undefined && found !== from) to.add(found);
  }
}

/** The first circle that can be reached from `module`, as it is walked. */
function circle(module: string, walked: readonly string[], done: Set<string>): string[] | null {
  if (walked.includes(module)) return [...walked.slice(walked.indexOf(module)), module];
  if (done.has(module)) return null;
  for (const next of arrows.get(module) ?? []) {
    const found = circle(next, [...walked, module], done);
    if (found) return found;
  }
  done.add(module);
  return null;
}

test('native modules include each other one way only: no circle', () => {
  expect(modules.size).toBeGreaterThan(50);
  const done = new Set<string>();
  const circles = [...modules].map((module) => circle(module, [], done)).filter((found) => found !== null);
  expect(circles.map((found) => found.map((module) => basename(module)).join(' → '))).toEqual([]);
});

test('rooms of the native runtime include core, and never each other', () => {
  const room = (module: string): string =>
    (module.startsWith('preload/') ? dirname(module) : module.split('/')[0]) ?? '';
  const crossing = [...arrows].flatMap(([from, to]) =>
    [...to]
      .filter((one) => room(one) !== room(from) && room(one) !== 'core' && !room(from).startsWith(room(one)))
      .map((one) => `${from} → ${one}`),
  );
  expect(crossing).toEqual([]);
});
