import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { output, say } from './say.mjs';
import { which } from './system.mjs';
import { cache } from './venv.mjs';

/** Version and folder of torch, without the seconds that importing it takes. */
const WHERE =
  'from importlib import metadata, util; print(metadata.version("torch"), util.find_spec("torch").submodule_search_locations[0])';

/** `source` compiled against the headers and libraries in the torch of `python`, once for each of both; null: it could not be. */
export function ensureLibtorch(python, source) {
  const compiler = which('c++') ?? which('g++') ?? which('clang++');
  const torch = output([python, '-c', WHERE])?.split(' ');
  const digest = createHash('sha256').update(readFileSync(source)).update(`${torch}`).digest('hex').slice(0, 12);
  const folder = join(cache(), `libtorch-${digest}`);
  const program = join(folder, 'train');
  if (existsSync(program)) return program;
  for (const other of readdirSync(cache()))
    if (other.startsWith('libtorch-')) rmSync(join(cache(), other), { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const started = Date.now();
  say(`compiling a program of libtorch into ${folder}: once a machine`);
  const home = torch?.[1] ?? '';
  const libraries = join(home, 'lib');
  const include = join(home, 'include');
  const words = ['-O0', '-std=c++20', `-I${include}`, `-I${join(include, 'torch', 'csrc', 'api', 'include')}`, source];
  const link = [`-L${libraries}`, `-Wl,-rpath,${libraries}`, '-Wl,--no-as-needed', '-ltorch_cpu', '-lc10'];
  if (output([compiler, ...words, '-o', `${program}.made`, ...link], { timeout: 20 * 60_000 }) === null) {
    say('NOT RUN: the tests with a C++ program of libtorch, since it could not be compiled.');
    return null;
  }
  renameSync(`${program}.made`, program);
  say(`  in ${((Date.now() - started) / 1000).toFixed(0)} s`);
  return program;
}
