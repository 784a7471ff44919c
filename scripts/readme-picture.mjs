#!/usr/bin/env node
/** Runs the search that the README shows and writes its output there, as a terminal shows it. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { findPython } from './setup/python.mjs';
import { ROOT, say } from './setup/say.mjs';

const README = join(ROOT, 'README.md');
const OOMTUNE = join(ROOT, 'bin', 'oomtune.js');
const ARGS = ['find-batch', '--name', 'mlp', '--device', 'cpu', '--budget', '300MiB', '--'];
const WIDTH = 118;

const python = findPython();
const home = mkdtempSync(join(tmpdir(), 'oomtune-picture-'));
const env = { ...process.env, OOMTUNE_HOME: home, NO_COLOR: '1' };
const call = (args) => spawnSync(process.execPath, [OOMTUNE, ...args], { cwd: ROOT, env, encoding: 'utf8' });
try {
  const ended = call([...ARGS, python.path, 'examples/mlp.py']);
  if (ended.status !== 0) throw new Error(ended.stderr);
  const cut = (line) => ([...line].length > WIDTH ? `${[...line].slice(0, WIDTH - 1).join('')}…` : line);
  const shown = `${ended.stderr}\n${ended.stdout}`
    .replaceAll(`${python.path} examples`, 'python examples')
    .trimEnd()
    .split('\n')
    .map(cut)
    .join('\n');
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  const made = `Made by \`node scripts/readme-picture.mjs\`: oomtune ${version}, torch ${python.torch}, Node ${process.versions.node}, ${cpus().length} cores.`;
  const block = `\`\`\`\n$ oomtune ${ARGS.join(' ')} python examples/mlp.py\n${shown}\n\`\`\`\n\n<sub>${made}</sub>\n`;
  const text = readFileSync(README, 'utf8');
  const marks = /(<!-- picture -->\n)[\s\S]*?(<!-- \/picture -->)/;
  if (!marks.test(text)) throw new Error('README.md has no place for the picture');
  writeFileSync(
    README,
    text.replace(marks, (_all, begin, end) => `${begin}\n${block}\n${end}`),
  );
  say(shown);
} finally {
  call(['redis', 'stop']);
  rmSync(home, { recursive: true, force: true });
}
