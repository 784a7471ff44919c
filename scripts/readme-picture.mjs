#!/usr/bin/env node
/**
 * Lays a search as a terminal shows it into README.md.
 *
 *   node scripts/readme-picture.mjs
 *     runs the one on host memory, which anybody can repeat
 *   node scripts/readme-picture.mjs --recorded FILE --machine LINE --date YYYY-MM-DD
 *     lays in one that was recorded on a machine with a GPU: FILE begins with `$ oomtune …`, LINE says machine and versions
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs, stripVTControlCharacters } from 'node:util';
import { findPython } from './setup/python.mjs';
import { ROOT, say } from './setup/say.mjs';

const README = join(ROOT, 'README.md');
const OOMTUNE = join(ROOT, 'bin', 'oomtune.js');
const ARGS = ['find-batch', '--name', 'mlp', '--device', 'cpu', '--budget', '300MiB', '--'];
const WIDTH = 118;

/** Text, and the small print under it, between the marks of a picture. */
function layIn(name, text, made) {
  const cut = (line) => ([...line].length > WIDTH ? `${[...line].slice(0, WIDTH - 1).join('')}…` : line);
  const shown = text.trimEnd().split('\n').map(cut).join('\n');
  const readme = readFileSync(README, 'utf8');
  const marks = new RegExp(`(<!-- picture ${name} -->\n)[\\s\\S]*?(<!-- /picture -->)`);
  if (!marks.test(readme)) throw new Error(`README.md has no place for the picture "${name}".`);
  const block = `\n\`\`\`text\n${shown}\n\`\`\`\n\n<sub>${made}</sub>\n\n`;
  writeFileSync(
    README,
    readme.replace(marks, (_all, begin, end) => `${begin}${block}${end}`),
  );
  say(shown);
}

/** What a terminal ends up with: the last of what was written over, without colours. */
const settled = (text) =>
  stripVTControlCharacters(text)
    .split('\n')
    .map((line) => line.replace(/\r$/, '').split('\r').at(-1).trimEnd())
    .join('\n');

function recorded({ recorded: file, machine, date }) {
  if (!machine || !/^\d{4}-\d\d-\d\d$/.test(date ?? ''))
    throw new Error('--machine LINE and --date YYYY-MM-DD are needed.');
  const text = settled(readFileSync(file, 'utf8'));
  if (!text.startsWith('$ oomtune ')) throw new Error(`${file} does not begin with "$ oomtune …".`);
  layIn('gpu', text, `Recorded ${date}: ${machine}.`);
}

function here() {
  const python = findPython();
  const home = mkdtempSync(join(tmpdir(), 'oomtune-picture-'));
  const env = { ...process.env, OOMTUNE_HOME: home, NO_COLOR: '1' };
  const call = (args) => spawnSync(process.execPath, [OOMTUNE, ...args], { cwd: ROOT, env, encoding: 'utf8' });
  try {
    const ended = call([...ARGS, python.path, 'examples/mlp.py']);
    if (ended.status !== 0) throw new Error(ended.stderr);
    const said = `${ended.stderr}\n${ended.stdout}`.replaceAll(`${python.path} examples`, 'python examples');
    const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
    const machine = `oomtune ${version}, torch ${python.torch}, Node ${process.versions.node}, ${cpus().length} cores`;
    const made = `Made by \`node scripts/readme-picture.mjs\`, ${new Date().toISOString().slice(0, 10)}: ${machine}.`;
    layIn('cpu', `$ oomtune ${ARGS.join(' ')} python examples/mlp.py\n${said}`, made);
  } finally {
    call(['redis', 'stop']);
    rmSync(home, { recursive: true, force: true });
  }
}

const text = { type: 'string' };
const { values } = parseArgs({ options: { recorded: text, machine: text, date: text } });
if (values.recorded === undefined) here();
else recorded(values);
