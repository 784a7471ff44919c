#!/usr/bin/env node
/** Formatter and linter of the native files. By hand, after `npm run setup`: `node scripts/setup/native-tools.mjs [--write]`. */
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join, relative } from 'node:path';
import { ROOT } from './say.mjs';
import { ensureTools } from './tools.mjs';

const TOOLS = {
  name: 'native-tools',
  tools: 'the linter and the formatter',
  kind: 'native',
  check: 'import clang_format, clang_tidy',
};
/** How cmake compiled what is shipped; tests are formatted, but clang-tidy does not read them. */
const COMMANDS = join(ROOT, 'build', 'compile_commands.json');

const files = (pattern) =>
  readdirSync(join(ROOT, 'native'), { recursive: true })
    .filter((path) => pattern.test(path))
    .map((path) => join('native', path))
    .sort();

/** False if a file is not as clang-format would have it; with `write` each is made so. */
function format(bin, write) {
  const mode = write ? ['-i'] : ['--dry-run', '-Werror'];
  const done = spawnSync(join(bin, 'clang-format'), [...mode, ...files(/\.(cpp|h)$/)], { cwd: ROOT, stdio: 'inherit' });
  return done.status === 0;
}

/** What the verdict on every file depends on, besides the file itself. */
function shared() {
  const digest = createHash('sha256');
  for (const path of ['.clang-tidy', 'package-lock.json', ...files(/\.(h|def)$/)]) {
    digest.update(path).update(readFileSync(join(ROOT, path)));
  }
  return digest.digest('hex');
}

/** What passed is marked, and not read again on this machine until something that it depends on changes. */
async function tidy(bin, { file, command }, base) {
  const passed = join(bin, '..', 'passed');
  const digest = createHash('sha256').update(base).update(command.replaceAll(ROOT, ''));
  const mark = join(passed, digest.update(readFileSync(file)).digest('hex'));
  if (existsSync(mark)) return true;
  const args = ['--quiet', '-p', join(ROOT, 'build'), '--header-filter=native/(core|addon|supervisor|preload)/', file];
  const child = spawn(join(bin, 'clang-tidy'), args, { cwd: ROOT, stdio: ['ignore', 'pipe', 'pipe'] });
  const said = { stdout: '', stderr: '' };
  for (const stream of ['stdout', 'stderr']) {
    child[stream].on('data', (part) => {
      said[stream] += part;
    });
  }
  const code = await new Promise((resolve, reject) => child.on('error', reject).on('close', resolve));
  if (code !== 0) {
    process.stdout.write(said.stdout || `clang-tidy ended with ${code} on ${relative(ROOT, file)}: ${said.stderr}\n`);
    return false;
  }
  mkdirSync(passed, { recursive: true });
  writeFileSync(mark, '');
  return true;
}

async function tidyAll(bin) {
  const native = join(ROOT, 'native');
  const left = JSON.parse(readFileSync(COMMANDS, 'utf8')).filter(({ file }) => file.startsWith(native));
  const base = shared();
  let clean = true;
  const lane = async () => {
    for (let one = left.pop(); one !== undefined; one = left.pop()) clean = (await tidy(bin, one, base)) && clean;
  };
  await Promise.all(Array.from({ length: availableParallelism() }, lane));
  return clean;
}

const bin = ensureTools(TOOLS);
const write = process.argv.includes('--write');
// `npm test` goes on without the tools; whoever asks for them by name is told by the exit code
if (bin === null) process.exitCode = process.argv.includes('--if-there') ? 0 : 5;
else if (!format(bin, write) || (!write && !(await tidyAll(bin)))) process.exitCode = 1;
