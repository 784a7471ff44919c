#!/usr/bin/env node
/**
 * Prints every function that a cuda.h declares, in all its forms, one a line: `node scripts/cuda-symbols.mjs cuda.h >
 * test/cuda/cuda-h.txt`. A test holds the stand-in to that list, so a newer header shows what is new in it. The header comes with
 * the toolkit, and in the package nvidia-cuda-runtime on PyPI.
 */
import { readFileSync } from 'node:fs';

const header = readFileSync(process.argv[2], 'utf8');
const [, version] = /^#define CUDA_VERSION (\d+)/m.exec(header) ?? [];
const names = new Set();
for (const [, name] of header.matchAll(/\bCUDAAPI\s+(cu[A-Z]\w*)\s*\(/g)) names.add(name);
// The newest form of a name is what the name itself stands for by a macro
for (const [, name] of header.matchAll(/^\s*#\s*define\s+cu[A-Z]\w*\s+(cu[A-Z]\w*)\s*$/gm)) names.add(name);
for (const [, kind, name] of header.matchAll(/__CUDA_API_(PTDS|PTSZ)\((cu[A-Z]\w*)\)/g)) {
  names.add(name);
  names.add(`${name}_${kind.toLowerCase()}`);
}
process.stdout.write(
  `# cuda.h of CUDA ${Math.floor(version / 1000)}.${(version % 1000) / 10}\n${[...names].sort().join('\n')}\n`,
);
