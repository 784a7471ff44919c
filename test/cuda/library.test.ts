import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { buildCard } from './card.js';
import { HARMLESS, UNCOUNTED } from './uncounted.js';

const SOURCES = join(import.meta.dirname, '..', '..', 'native', 'preload', 'cuda');

let folder: string;
beforeAll(async () => {
  folder = await buildCard('plain');
}, 600_000);

const listed = (file: string) =>
  [...readFileSync(join(SOURCES, file), 'utf8').matchAll(/^SYMBOL\((\w+)\)$/gm)].map((m) => m[1]);

function exported(library: string): string[] {
  const table = execFileSync('nm', ['-D', '--defined-only', library], { encoding: 'utf8' });
  return table
    .trim()
    .split('\n')
    .map((line) => line.split(' ').at(-1) as string);
}

describe.each([
  ['libcuda.so.1', 'symbols.def', /^(oomtune_|cu[A-Z])/],
  ['libnvidia-ml.so.1', 'nvml/symbols.def', /^(oomtune_|nvml[A-Z])/],
])('the stand-in %s', (name, list, ours) => {
  const library = () => join(folder, 'cuda', name);

  test('bears the name of the library that it stands in for', () => {
    expect(execFileSync('readelf', ['-d', library()], { encoding: 'utf8' })).toContain(`Library soname: [${name}]`);
  });

  test('exports what is listed, and nothing else but its own calls', () => {
    const names = exported(library());
    expect(names.filter((symbol) => !symbol.startsWith('oomtune_')).sort()).toEqual([...listed(list)].sort());
    expect(names.every((symbol) => ours.test(symbol))).toBe(true);
  });

  test('keeps its list sorted by byte, as it is searched', () => {
    const names = listed(list);
    expect(names).toEqual([...new Set(names)].sort());
  });
});

test('the list of libcuda covers the functions that CUDA 12 and 13 programs link to', () => {
  const names = new Set(listed('symbols.def'));
  for (const symbol of [
    'cuCtxCreate_v2',
    'cuCtxCreate_v4',
    'cuMemAllocAsync_ptsz',
    'cuGraphAddNode_v2',
    'cuLogsCurrent',
  ]) {
    expect(names).toContain(symbol);
  }
  expect(names.size).toBeGreaterThan(725);
});

const HEADERS = ['/usr/local/cuda/include', '/usr/include'].find((folder) => existsSync(join(folder, 'cuda.h')));
if (!HEADERS) console.warn("Skipped: the list beside CUDA's own headers, as they are not installed here.");

test.skipIf(!HEADERS)("the list of libcuda covers CUDA's own headers", () => {
  const names = new Set(listed('symbols.def'));
  const own = ['cuda.h', 'cudaProfiler.h', 'cudaGL.h', 'cudaEGL.h', 'cudaVDPAU.h'].filter((file) =>
    existsSync(join(HEADERS as string, file)),
  );
  const text = own.map((file) => readFileSync(join(HEADERS as string, file), 'utf8')).join('\n');
  // A header maps names to their newest forms by macros, and declares the rest under the names themselves.
  const declared = [...text.matchAll(/^CUresult CUDAAPI (cu[A-Z]\w+)\(/gm)].map((match) => match[1] as string);
  const forms = [...text.matchAll(/\b(cu[A-Z]\w+_(?:v\d|ptsz|ptds)(?:_pts[z]|_ptds)?)\b/g)].map(
    (match) => match[1] as string,
  );
  expect(declared.length).toBeGreaterThan(400);
  const windows = /^cuWGL/;
  expect([...new Set([...declared, ...forms])].filter((name) => !names.has(name) && !windows.test(name))).toEqual([]);
});

const hooks = readdirSync(SOURCES)
  .filter((file) => file.startsWith('hooks_'))
  .flatMap((file) =>
    [...readFileSync(join(SOURCES, file), 'utf8').matchAll(/OOMTUNE_HOOKED\((\w+)\)/g)].map(
      (match) => match[1] as string,
    ),
  );

test('every hook is called by some program of the tests', () => {
  const programs = join(SOURCES, '..', '..', 'test', 'driver');
  const text = readdirSync(programs)
    .filter((file) => /^(scenarios.*\.cpp|program\.h)$/.test(file))
    .map((file) => readFileSync(join(programs, file), 'utf8'))
    .join('\n');
  expect(hooks.filter((name) => !text.includes(`"${name}"`))).toEqual([]);
});

test('no hook lies on the launch path but for graphs, whose memory nodes take theirs there', () => {
  expect(hooks.length).toBeGreaterThan(40);
  expect(hooks.filter((name) => /^cu(Launch|GraphLaunch|Memcpy|Memset|Event|StreamSynchronize)/.test(name))).toEqual([
    'cuGraphLaunch',
    'cuGraphLaunch_ptsz',
  ]);
  const known = new Set(listed('symbols.def'));
  expect(hooks.filter((name) => !known.has(name))).toEqual([]);
});

const KNOWN = readFileSync(join(import.meta.dirname, 'cuda-h.txt'), 'utf8')
  .split('\n')
  .filter((line) => line !== '' && !line.startsWith('#'));

// Made by `node scripts/cuda-symbols.mjs`: with that of a newer CUDA in its place this shows what has to be looked at.
test('of the newest cuda.h every function is listed, and hooked or known to take no memory', () => {
  const names = new Set(listed('symbols.def'));
  expect(KNOWN.length).toBeGreaterThan(650);
  expect(KNOWN.filter((name) => !names.has(name))).toEqual([]);
  const uncounted = new Set(Object.values(UNCOUNTED).flat());
  const seen = (name: string): boolean =>
    hooks.includes(name) || uncounted.has(name) || HARMLESS.some((family) => family.test(name));
  expect(KNOWN.filter((name) => !seen(name))).toEqual([]);
});

test('nothing is said to take no memory that is hooked, or that no header has', () => {
  const uncounted = Object.values(UNCOUNTED).flat();
  expect(uncounted.filter((name) => hooks.includes(name) || !KNOWN.includes(name))).toEqual([]);
});

test('a family of harmless calls has none that allocates', () => {
  const allocates = /Alloc(?!ation)|Create|Register(?!Async)|Import(?!.*Pointer)|Load|MapArray|Bind|Instantiate|Upload/;
  const named = KNOWN.filter((name) => HARMLESS.some((family) => family.test(name)) && !hooks.includes(name));
  // Views of memory that is there, small things of the driver's own (overhead), and what registers a function to be called
  const views =
    /^cu(TexObject|SurfObject|TexRef|Event|UserObject|GraphConditionalHandle)Create|^cuFuncLoad|^cuFuncIsLoaded|LoadingMode|^cuCoredump|^cuLogs|AllocNodeGetParams|Granularity/;
  expect(named.filter((name) => allocates.test(name) && !views.test(name))).toEqual([]);
});
