#!/usr/bin/env node
/**
 * Runs programs that nobody wrote for oomtune under it: each row of rows/ is a repository at a commit, a command, and data
 * that is made here. Records what find-batch found, whether that holds in a fresh process and 2 % more does not, what the
 * search cost beside a bare start, and how far the weights are apart when `run` lets the program stand and when it cuts its batch.
 * node bench/upstream/run.mjs --sources DIR [--device cpu|cuda:0] [--python PATH] [--jax PATH] [--only NAME,NAME] [--parts alone,search,truth,stands,cut]
 *                             [--minutes N] [--row-minutes N] [--together N] [--out FILE] [--again] [--once] [--keep] [--list]
 * --sources: a folder with the checkouts as <owner>/<name>; what is missing there is fetched at its commit. --out gets one
 * line of JSON for each part as it ends (default: bench/results/upstream-<cpu|cuda>.jsonl) and what stands in it is not measured again
 * without --again. --once: how far two runs of a program are apart by themselves is not asked. --keep: the folder of each row stays. `--parts try` only starts each program for one step. `node bench/upstream/report.mjs` makes the page. Needs `npm run build`, redis-server, torch 2.1 or newer.
 */
import { execFile } from 'node:child_process';
import {
  appendFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs, promisify } from 'node:util';
import PQueue from 'p-queue';
import { parseSize } from '../../dist/common/size.js';
import { interpreter, ROOT, stopRedis } from '../search/oomtune.mjs';
import { PARTS } from './measure.mjs';
import { call, missingModules } from './programs.mjs';
import { conditionsOf, isOutOfTime, recorded, versionsOf } from './report.mjs';
import { ROWS } from './rows/index.mjs';
import { checkout } from './sources.mjs';

const text = (preset) => ({ type: 'string', default: preset });
const { values: given } = parseArgs({
  options: {
    sources: text(join(tmpdir(), 'oomtune-upstream')),
    device: text('cpu'),
    python: text(interpreter()),
    jax: { type: 'string' },
    only: { type: 'string' },
    parts: text('alone,search,truth,stands,cut'),
    minutes: text('600'),
    'row-minutes': text('15'),
    together: text('1'),
    out: { type: 'string' },
    again: { type: 'boolean' },
    once: { type: 'boolean' },
    keep: { type: 'boolean' },
    list: { type: 'boolean' },
  },
});
const { device, python } = given;
const kind = device === 'cpu' ? 'cpu' : 'cuda';
/** An interpreter with JAX: it has an environment of its own. */
const jax = given.jax ?? python;
const sources = resolve(given.sources);
const parts = given.parts.split(',');
const only = given.only?.split(',');
const out = resolve(given.out ?? join(ROOT, 'bench', 'results', `upstream-${kind}.jsonl`));
const until = performance.now() + Number(given.minutes) * 60_000;
const rowMinutes = Number(given['row-minutes']);
/** Models of the usual size on a GPU, tiny ones on the CPU. */
const SCALE = kind === 'cuda' ? '-base' : '';
const rows = ROWS.filter(({ name, ...row }) => kind in row && (!only || only.some((word) => name.includes(word))));

const MAKER = fileURLToPath(new URL('./data.py', import.meta.url));
const begun = performance.now();
const say = (text) =>
  process.stderr.write(`${((performance.now() - begun) / 1000).toFixed(0).padStart(5)} s  ${text}\n`);

const making = new Map();

/** Data is made once for all rows that ask for it in the same words. */
function data(words) {
  const folder = join(sources, 'made', words.replaceAll(/[^\w.-]+/g, '_'));
  if (!making.has(folder)) making.set(folder, existsSync(join(folder, 'made')) ? folder : made(folder, words));
  return making.get(folder);
}

async function made(folder, words) {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  try {
    await call(python, [MAKER, folder, ...words.split(' ')]);
  } catch (error) {
    throw new Error(`data ${words}: ${error.message}`);
  }
  return folder;
}

/** Where a row is run: a copy of the program, its data beside it, an OOMTUNE_HOME of its own. */
async function placeOf(row) {
  const settings = { own: row.own, ...row[kind] };
  const source = checkout(row.repository, sources);
  const command = `${row.program ?? '{python}'} ${row.command} ${settings.args ?? ''}`
    .replaceAll('{scale}', SCALE)
    .split(' ')
    .filter(Boolean);
  const words = new Map();
  for (const [, text] of command.join(' ').matchAll(/\{data:([^}]*)\}/g)) {
    words.set(text, await data(text.replaceAll('+', ' ')));
  }
  const scratch = mkdtempSync(join(tmpdir(), 'oomtune-upstream-'));
  const copy = join(scratch, 'source');
  for (const folder of row.folders ?? [row.folder ?? '.']) {
    mkdirSync(dirname(join(copy, folder)), { recursive: true });
    cpSync(join(source, folder), join(copy, folder), { recursive: true, filter: (path) => !path.endsWith('/.git') });
  }
  const cwd = join(copy, row.folder ?? '.');
  for (const [path, text] of Object.entries(row.links ?? {})) {
    const [made, file = '.'] = text.replaceAll('{scale}', SCALE).split('#');
    mkdirSync(dirname(join(cwd, path)), { recursive: true });
    rmSync(join(cwd, path), { recursive: true, force: true });
    symlinkSync(join(await data(made), file), join(cwd, path));
  }
  const filled = (word) =>
    word
      .replaceAll('{python}', python)
      .replaceAll('{jax}', jax)
      .replaceAll(/\{data:([^}]*)\}/g, (_, text) => words.get(text));
  for (const [file, pairs] of Object.entries(row.edits ?? {})) edit(join(cwd, file), pairs);
  if (row.build) await promisify(execFile)('sh', ['-c', filled(row.build)], { cwd });
  const line = (own) => [...command.map((word) => filled(word).replaceAll('{size}', own)), ...sizeOf(row, own)];
  const ends = Math.min(until, performance.now() + rowMinutes * 60_000);
  return {
    scratch,
    cwd,
    checkout: copy,
    device,
    python,
    children: new Set(),
    home: join(scratch, 'home'),
    budget: settings.budget,
    budgetBytes: parseSize(settings.budget),
    own: settings.own,
    cut: settings.cut,
    once: given.once,
    standIns: await missingModules(row.program === '{jax}' ? jax : python, row.logs ?? []),
    argv: line,
    command: row.placeholders ? line('{micro_batch}') : line(settings.own),
    left: () => (ends - performance.now()) / 1000,
  };
}

/** Puts one text in another's place, each of which is there once. */
function edit(file, pairs) {
  let text = readFileSync(file, 'utf8');
  for (const [from, to] of pairs) {
    if (text.split(from).length !== 2) throw new Error(`${file} is not the one that was to be edited: ${from}`);
    text = text.replace(from, to);
  }
  writeFileSync(file, text);
}

/** How a program is given its batch size: `--batch-size`, `--batch-size=` or `a.b.batch_size=`. */
function sizeOf({ size }, own) {
  if (!size || size === '{size}') return [];
  return size.endsWith('=') ? [`${size}${own}`] : [size, String(own)];
}

const conditions = conditionsOf(python, device);

const packagesOf = (row) => (row.packages ? { packages: versionsOf(jax, row.packages) } : {});

/** Where rows are being run at this moment. */
const places = new Set();

function leave(place) {
  stopRedis(place.home);
  if (given.keep) say(`kept: ${place.scratch}`);
  else rmSync(place.scratch, { recursive: true, force: true });
  places.delete(place);
}

for (const signal of ['SIGINT', 'SIGTERM']) {
  process.once(signal, () => {
    for (const place of places) {
      for (const child of place.children) child.kill('SIGTERM');
      leave(place);
    }
    process.exit(1);
  });
}

async function measure(row) {
  const known = given.again ? {} : (recorded(out).get(row.name) ?? {});
  const left = parts.filter((part) => known[part] === undefined || known[part]?.failed);
  // Weights are compared with those of a run of this scratch folder.
  if ((left.includes('stands') || left.includes('cut')) && !left.includes('alone')) left.unshift('alone');
  if (left.length === 0 || performance.now() > until) return;
  let place;
  const record = (part, value) => {
    known[part] = value;
    appendFileSync(out, `${JSON.stringify({ row: row.name, part, ...conditions, ...packagesOf(row), value })}\n`);
    say(`${row.name} ${part}: ${JSON.stringify(value)?.slice(0, 300)}`);
  };
  try {
    place = await placeOf(row);
    places.add(place);
  } catch (error) {
    return record('place', { failed: error.message });
  }
  const settled = { ...row, own: place.own };
  try {
    for (const part of Object.keys(PARTS).filter((name) => left.includes(name))) {
      if (place.left() < 5) return say(`${row.name}: no time for ${part}`);
      try {
        record(part, await PARTS[part](settled, place, known));
      } catch (error) {
        if (isOutOfTime(error.message) && performance.now() > until) return say(`${row.name}: out of time`);
        record(part, { failed: error.message });
        if (part === 'alone') return;
      }
    }
  } finally {
    leave(place);
  }
}

if (given.list) {
  const width = Math.max(...rows.map(({ name }) => name.length));
  for (const row of rows) process.stdout.write(`${row.name.padEnd(width)}  ${row.repository} ${row.folder ?? ''}\n`);
  process.exit(0);
}
mkdirSync(dirname(out), { recursive: true });
const queue = new PQueue({ concurrency: Number(given.together) });
await queue.addAll(rows.map((row) => () => measure(row)));
say(`done: ${out}`);
