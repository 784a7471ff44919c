#!/usr/bin/env node
/**
 * The longest context that an 8B-parameter Llama with adapters (LoRA, rank 32) in bf16 trains with, by budget: plain transformers with SDPA,
 * beside the same with what oomtune turns on of what changes no number (`--exact`: checkpointing, activations in host memory, …).
 * node bench/context/run.mjs [--device cuda:0] [--python PATH] [--budgets 8,12,16,24,40,48,80] [--weights bf16,4bit] [--minutes 9.5]
 *                            [--most TOKENS] [--record] [--keep] [--dry]
 * Each search is `find-batch --knob seq_len`. A next one asks for more than the last found (`--knob-min`), which has oomtune climb its
 * ladder, until nothing fits; --most: nothing longer is tried. --keep goes on from the last record: what it has is not measured again. --dry tries the whole of it on the CPU,
 * with a toy model under budgets in MiB. Needs `npm run build`, redis-server, and a Python with torch, transformers and peft.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findBatch, option, ROOT, stopRedis, torchVersion } from '../search/oomtune.mjs';
import { record, recorded } from '../search/report.mjs';

const flag = (name) => process.argv.includes(name);
const dry = flag('--dry');
const python = option('--python') ?? 'python3';
const device = option('--device') ?? (dry ? 'cpu' : 'cuda:0');
const unit = dry ? 'MiB' : 'GiB';
const budgets = (option('--budgets') ?? (dry ? '96,160' : '8,12,16,24,40,48,80')).split(',').map(Number);
const kinds = (option('--weights') ?? 'bf16,4bit').split(',');
const until = performance.now() + Number(option('--minutes') ?? 600) * 60_000;
const most = option('--most');
const file = dry ? 'context-dry' : 'context';
const command = `node bench/context/run.mjs ${process.argv.slice(2).join(' ')}`.trim();
/**
 * What the searches after the first ask for, in times of the longest so far: what is turned on for a little more is not what reaches
 * furthest, so the next asks for much more.
 */
const TIMES = [4, 1.1, 1.1];

const home = mkdtempSync(join(tmpdir(), 'oomtune-context-'));
const begun = performance.now();
const say = (text) =>
  process.stderr.write(`${((performance.now() - begun) / 1000).toFixed(0).padStart(4)} s  ${text}\n`);
const rows = flag('--keep') ? recorded(file) : [];

async function longest(weights, budget, more) {
  const words = ['llama.py', '--seq-len', '{seq_len}', '--weights', weights, '--device', dry ? 'cpu' : 'cuda'];
  if (dry) words.push('--size', 'toy', '--steps', '4');
  const workload = { command: [python, ...words], cwd: join(ROOT, 'bench', 'context') };
  const knob = ['--knob', 'seq_len={seq_len}', '--knob-multiple-of', '64', '--exact', ...more];
  if (most) knob.push('--knob-max', most);
  return findBatch(workload, { home, device, budget: `${budget}${unit}`, steps: 3, more: knob });
}

const PLAIN = 'as it stands';
const rungOf = (config) =>
  Object.entries(config)
    .filter(([name, value]) => value === true && name !== 'expandable_segments')
    .map(([name]) => name)
    .join(' + ') || PLAIN;

/** Searches further and further; `keep` is called with the row so far after each search. */
async function measure(weights, budget, keep) {
  const searches = [];
  const reaches = async (least) => {
    const found = await longest(weights, budget, ['--knob-min', String(Math.ceil(least / 64) * 64)]);
    const where = `  ${weights}, ${budget} ${unit}:`;
    if (found.status === 'failed') throw new Error(`${found.failure.class}: ${found.failure.evidence}`);
    if (found.status === 'found') searches.push(found);
    keep(rowOf(weights, budget, searches));
    if (found.status === 'found') say(`${where} ${found.knob.max} ${rungOf(found.config)}, ${found.wall_s} s`);
    else say(`${where} nothing from ${least} on: ${found.failure.evidence}`);
    return found.status === 'found';
  };
  const fits = await reaches(64);
  for (const times of fits ? TIMES : []) {
    const least = times * searches.at(-1).knob.max;
    if (most && least > Number(most)) continue;
    if (!(await reaches(least)) && times === TIMES.at(-1)) break;
  }
  keep({ ...rowOf(weights, budget, searches), over: true });
}

function rowOf(weights, budget, searches) {
  const plain = searches.find(({ config }) => rungOf(config) === PLAIN) ?? null;
  const best = searches.at(-1) ?? null;
  return {
    weights,
    budget,
    unit,
    card: cardName(),
    torch: torchVersion(python),
    plain: plain?.knob.max ?? null,
    longest: best?.knob.max ?? null,
    rung: best === null ? null : rungOf(best.config),
    peak_bytes: best?.peak_bytes ?? null,
    bounded_by: best?.knob.bounded_by ?? null,
    launches: searches.map((one) => one.launches),
    search_s: searches.map((one) => one.wall_s),
    step_s: best === null ? null : 1 / best.samples_per_s,
  };
}

function cardName() {
  if (dry) return 'a toy model on the CPU: the figures say nothing';
  const query = ['--query-gpu=name,driver_version', '--format=csv,noheader'];
  return spawnSync('nvidia-smi', query, { encoding: 'utf8' }).stdout.split('\n')[0];
}

function table() {
  const lines = rows.map((row) => {
    // Stopped before anything but the plain script was searched for: how far oomtune reaches is not known.
    const known = row.over || row.launches.length > 1;
    const reach = `${row.longest}${row.bounded_by === 'options' ? ' or more' : ''}`;
    const times = row.plain && row.longest ? (row.longest / row.plain).toFixed(1) : '';
    const oomtune = known ? [reach, times, row.rung, row.step_s.toFixed(1)] : ['not measured', '', '', ''];
    const cells = [
      ...[row.weights, `${row.budget} ${row.unit}`, row.plain ?? 'does not fit'],
      ...(row.longest === null ? ['does not fit', '', '', ''] : oomtune),
      ...[row.launches.join(' + '), row.search_s.map(Math.round).join(' + ')],
    ];
    return `| ${cells.join(' | ')} |`;
  });
  const among = (name) => [...new Set(rows.map((row) => row[name]))].join('; ');
  return [
    '# The longest context that trains\n',
    `Made by \`${command}\`: torch ${among('torch')}, ${among('card')}. Largest multiple of 64 tokens; ends of 2 % apart are not told from one another. 'Or more': nothing longer was tried.\n`,
    '| weights | budget | plain | with oomtune | times | rung | s a step | launches | searches, s |',
    '| --- | --- | --- | --- | --- | --- | --- | --- | --- |',
    ...lines,
    '',
  ].join('\n');
}

try {
  for (const weights of kinds) {
    for (const budget of budgets) {
      if (rows.some((row) => row.weights === weights && row.budget === budget)) continue;
      if (performance.now() > until) {
        say(`not reached: ${weights}, ${budget} ${unit}`);
        continue;
      }
      const at = rows.length;
      await measure(weights, budget, (row) => {
        rows[at] = row;
        if (flag('--record')) record(file, rows, table());
      });
    }
  }
  process.stdout.write(table());
} finally {
  stopRedis(home);
  rmSync(home, { recursive: true, force: true });
}
