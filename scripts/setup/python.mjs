import { existsSync, readdirSync, realpathSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { output, ROOT } from './say.mjs';

const ASK = 'import json,sys,torch;print(json.dumps({"python":sys.version.split()[0],"torch":torch.__version__}))';

let found;

/**
 * An interpreter that can import torch: `OOMTUNE_PYTHON`, every python3 and python on PATH, then /usr/bin and
 * /usr/local/bin. `{ path, python, torch, passed }`, with the interpreters that had none in `passed`; null if there is none.
 */
export function findPython({ again = false } = {}) {
  if (found && !again) return found;
  const passed = [];
  for (const path of candidates()) {
    const told = output([path, '-c', ASK], { env: { PYTHONDONTWRITEBYTECODE: '1' } });
    if (told !== null) {
      found = { path, ...JSON.parse(told), passed };
      return found;
    }
    passed.push(path);
  }
  return null;
}

/** An interpreter that can build a wheel without fetching anything: the one with torch, else the system's; null: none. */
export function findWheelBuilder() {
  const ask = 'import importlib.util as u,sys;sys.exit(not all(map(u.find_spec,("pip","setuptools","wheel"))))';
  const places = [findPython()?.path, '/usr/bin/python3'];
  return places.find((path) => path && output([path, '-c', ask]) !== null) ?? null;
}

/** Each start of a script would else compile the hook anew where no bytecode may be written (PYTHONDONTWRITEBYTECODE). */
export function compileHook(python) {
  output([python, '-m', 'compileall', '-q', join(ROOT, 'python')]);
}

function candidates() {
  const paths = [];
  const seen = new Set();
  const add = (path) => {
    if (!existsSync(path)) return;
    const real = realpathSync(path);
    if (seen.has(real) && !path.includes('shims')) return;
    seen.add(real);
    paths.push(path);
  };
  if (process.env.OOMTUNE_PYTHON) paths.push(process.env.OOMTUNE_PYTHON);
  const folders = [...(process.env.PATH ?? '').split(delimiter), '/usr/bin', '/usr/local/bin'];
  for (const folder of new Set(folders)) {
    if (folder === '') continue;
    for (const name of ['python3', 'python']) add(join(folder, name));
  }
  for (const name of existsSync('/usr/bin') ? readdirSync('/usr/bin') : []) {
    if (/^python3\.\d+$/.test(name)) add(join('/usr/bin', name));
  }
  return paths;
}
