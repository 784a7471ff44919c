#!/usr/bin/env node
/**
 * Makes dist/program/ of dist/ and the libraries that it uses: a dozen files are read at a start where there were four
 * hundred, and the scripts for Redis. What a library's licence asks to be kept with it goes into LICENSES.txt beside them.
 */
import { cpSync, existsSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { rolldown } from 'rolldown';
import { ROOT } from './say.mjs';

const PROGRAM = join(ROOT, 'dist', 'program');
const DRAFT = `${PROGRAM}.${process.pid}`;

/** The folders of the packages that the modules are from. */
function packagesOf(modules) {
  const folders = modules.map((id) => /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/.exec(id)?.[0]);
  return [...new Set(folders.filter((folder) => folder !== undefined))].sort();
}

function licence(folder) {
  const { name, version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
  const file = readdirSync(folder).find((known) => /^(licen[cs]e|copying)/i.test(known));
  if (file === undefined && license === undefined) throw new Error(`${name} ${version} names no licence`);
  const text = file === undefined ? '' : `\n${readFileSync(join(folder, file), 'utf8').trim()}\n`;
  return `${name} ${version}: ${license ?? 'see below'}\n${text}`;
}

const built = await rolldown({
  input: {
    main: join(ROOT, 'dist', 'cli', 'main.js'),
    // native.js stands for itself, too: the installation asks it whether what was built ahead loads
    native: join(ROOT, 'dist', 'runtime', 'native.js'),
    // and what the tests' daemon has with settings of its own (test/fixtures/daemon)
    daemon: join(ROOT, 'dist', 'daemon', 'index.js'),
    store: join(ROOT, 'dist', 'store', 'index.js'),
    runtime: join(ROOT, 'dist', 'runtime', 'index.js'),
  },
  platform: 'node',
  // an option of a library's, and not there: bullmq packs its keys without it
  external: ['msgpackr-extract'],
  onLog(_level, log) {
    throw new Error(log.message);
  },
});
// What is compiled and not bundled reads them beside itself, and so does the bundle.
const LUA = join(ROOT, 'src', 'store', 'lua');
for (const target of [join(ROOT, 'dist', 'store', 'lua'), join(DRAFT, 'lua')]) {
  rmSync(target, { recursive: true, force: true });
  cpSync(LUA, target, { recursive: true });
}

const { output } = await built.write({ dir: DRAFT, format: 'esm' });
await built.close();
const modules = output.flatMap((part) => (part.type === 'chunk' ? part.moduleIds : []));
writeFileSync(
  join(DRAFT, 'LICENSES.txt'),
  packagesOf(modules)
    .map(licence)
    .join(`\n${'-'.repeat(80)}\n\n`),
);
// What is called meanwhile finds the whole of one of the two.
if (existsSync(PROGRAM)) renameSync(PROGRAM, `${DRAFT}.old`);
renameSync(DRAFT, PROGRAM);
rmSync(`${DRAFT}.old`, { recursive: true, force: true });
