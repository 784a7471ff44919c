#!/usr/bin/env node
/**
 * What each rung saves and costs, and whether it trains the same: bytes, samples/s and equality beside the script as it stands.
 * node bench/rungs/run.mjs [--device cpu|cuda:0] [--models gpt2,llama,bert,gpt2-compiled,gpt2-adamw,…] [--rungs NAME,…] [--python PATH] [--samples 4]
 *                          [--tokens 256] [--steps 3] [--record | --report] [--note TEXT]
 * Each run is a fresh process of bench/rungs/train.py with the hook as `oomtune run` starts it. The processes of a model are started together
 * on a GPU's host, and go on from there one by one. On a GPU the models have their real
 * size, peaks are what torch allocated and seconds are the wall's; on the CPU they are small, peaks are the growth of resident
 * memory and seconds are the processor's. --record keeps its rows in bench/results/rungs.jsonl, in the place of those of the same device, model and rung, and writes rungs.md of all;
 * --report only writes it.
 */
import { spawn } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { delimiter, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const option = (name, preset) => {
  const at = process.argv.indexOf(name);
  return at < 0 ? preset : process.argv[at + 1];
};
const device = option('--device', 'cpu');
const python = option('--python', process.env.OOMTUNE_TEST_FRAMEWORKS ?? 'python3');
const gpu = device !== 'cpu';
const models = option('--models', 'gpt2,llama,bert').split(',');
const size = [option('--samples', '4'), option('--tokens', '256'), option('--steps', '3')];

/** Parts of its activations that a compiled model may keep. */
const BUDGETS = ['0.7', '0.5', '0.3'];

/** What there is beside a device alone. */
const ON_GPU = {
  'optimizer on host': { optimizer_on_host: '1' },
  'checkpointing + chunked loss + optimizer on host': { checkpointing: '1', chunked_loss: '1', optimizer_on_host: '1' },
  offload: { offload: '1' },
  'offload of 0.3': { offload: '1', offloaded_part: '0.3' },
  'offload of 0.6': { offload: '1', offloaded_part: '0.6' },
  'checkpointing + offload + chunked loss': { checkpointing: '1', offload: '1', chunked_loss: '1' },
};

/** What oomtune does only where it is allowed to, for an optimizer with moments. */
const ALLOWED = {
  'optimizer in 8 bits': { optimizer_8bit: '1' },
  'bf16 + weights in bf16': { amp: 'bf16', bf16_weights: '1' },
};

/** The knobs that are on, by the name of the rung. */
const RUNGS = {
  'as it stands': {},
  'chunked loss': { chunked_loss: '1' },
  'checkpointing of half the blocks': { checkpointing: '1', checkpointed_blocks: 'half' },
  checkpointing: { checkpointing: '1' },
  'checkpointing + chunked loss': { checkpointing: '1', chunked_loss: '1' },
  bf16: { amp: 'bf16' },
  'bf16 + chunked loss': { amp: 'bf16', chunked_loss: '1' },
  ...Object.fromEntries(BUDGETS.map((part) => [`activation budget ${part}`, { activation_memory_budget: part }])),
  ...(gpu ? ON_GPU : {}),
  ...ALLOWED,
};
const ofCompiled = (rung) => rung === 'as it stands' || 'activation_memory_budget' in RUNGS[rung];
const wantedOf = (model) => {
  const ofOthers = (rung) =>
    !('activation_memory_budget' in RUNGS[rung]) && (model.includes('-adamw') || !(rung in ALLOWED));
  return (
    option('--rungs', null)?.split(',') ??
    Object.keys(RUNGS).filter(model.includes('-compiled') ? ofCompiled : ofOthers)
  );
};

/** Of the layers of bench/rungs/train.py. */
const HALF = { small: '0/2', gpt2: '0-5/12', bert: '0-5/12', llama: '0-7/16' };

/** A process that has made its model, and waits; `trained` lets it go on, and gives what it tells. */
function start(model, knobs) {
  const on = Object.keys(knobs);
  const value = (text) => (text === 'half' ? HALF[gpu ? model.split('-')[0] : 'small'] : text);
  const hook = Object.fromEntries(on.map((knob) => [`OOMTUNE_${knob.toUpperCase()}`, value(knobs[knob])]));
  const path = [join(ROOT, 'python', 'inject'), join(ROOT, 'python')].join(delimiter);
  const env = { ...process.env, ...hook, PYTHONPATH: path, OOMTUNE_HOOK: 'apply', OOMTUNE_HOOK_KNOBS: on.join(',') };
  const script = join(ROOT, 'bench', 'rungs', 'train.py');
  const child = spawn(python, [script, model, device, gpu ? 'real' : 'small', ...size], { env });
  let errors = '';
  child.stderr.on('data', (text) => {
    errors += text;
  });
  child.stdin.on('error', () => {}); // it ended before it was let go on: its exit status tells
  const lines = [];
  const reader = createInterface({ input: child.stdout });
  const ready = new Promise((done) => {
    reader.on('line', (line) => {
      lines.push(line);
      done();
    });
    child.on('close', done);
  });
  const closed = new Promise((done) => {
    child.on('close', done);
  });
  return {
    ready,
    async trained() {
      child.stdin.end('go\n');
      const status = await closed;
      return status === 0 ? JSON.parse(lines.at(-1)) : { failed: errors.trim().split('\n').at(-1) };
    },
  };
}

const number = (value) => (value === null || value === undefined ? '' : value.toExponential(1));

/** The largest difference of two lists of numbers, relative to the largest of each group. */
function difference(one, other) {
  const apart = (a, b) =>
    Math.max(...a.map((value, at) => Math.abs(value - b[at]))) / Math.max(...a.map(Math.abs), 1e-3);
  return Math.max(...one.map((each, at) => apart([each].flat(), [other[at]].flat())));
}

const machine = gpu ? null : `CPU (${cpus()[0]?.model ?? 'unknown'}, ${cpus().length} cores)`;
const rows = [];
const RECORD = join(ROOT, 'bench', 'results', 'rungs.jsonl');
const TABLE = join(ROOT, 'bench', 'results', 'rungs.md');
const command = `node bench/rungs/run.mjs ${process.argv.slice(2).join(' ')}`.trim();
const note = option('--note', null);
const told = () => rows.map((row) => ({ ...row, command: command.replace(python, 'PATH'), ...(note ? { note } : {}) }));
const recorded = () =>
  existsSync(RECORD)
    ? readFileSync(RECORD, 'utf8')
        .split('\n')
        .filter(Boolean)
        .map((line) => JSON.parse(line))
    : [];

/** After each row, so that a run that is cut off keeps those that it has. */
function record() {
  const of = (row) => `${row.device} ${row.model} ${row.rung}`;
  const mine = new Set(rows.map(of));
  const all = [...recorded().filter((row) => !mine.has(of(row))), ...told()];
  writeFileSync(RECORD, `${all.map((row) => JSON.stringify(row)).join('\n')}\n`);
  writeFileSync(TABLE, table(all));
}

for (const model of process.argv.includes('--report') ? [] : models) {
  let plain = null;
  const wanted = wantedOf(model);
  const started = gpu ? wanted.map((rung) => start(model, RUNGS[rung])) : [];
  await Promise.all(started.map((one) => one.ready));
  for (const [at, rung] of wanted.entries()) {
    const ran = await (started[at] ?? start(model, RUNGS[rung])).trained();
    plain ??= ran.failed ? null : ran;
    const row = {
      device: machine ?? ran.device,
      torch: ran.torch,
      model,
      samples: Number(size[0]),
      tokens: Number(size[1]),
      rung,
    };
    if (ran.failed) rows.push({ ...row, failed: ran.failed });
    else {
      const { peak_bytes, samples_per_s, losses, gradients, weights } = ran;
      const apart = (name, own) => (plain === null ? null : difference(plain[name], own));
      const equality = {
        loss: apart('losses', losses),
        gradients: apart('gradients', gradients),
        weights: apart('weights', weights),
      };
      rows.push({ ...row, peak_bytes, samples_per_s, ...equality });
    }
    process.stderr.write(`${JSON.stringify(rows.at(-1))}\n`);
    if (process.argv.includes('--record')) record();
  }
}

function table(all) {
  const lines = ['# What each rung saves and costs', ''];
  for (const place of new Set(all.map((row) => row.device))) {
    const here = all.filter((row) => row.device === place);
    lines.push(
      `## ${place}`,
      '',
      `\`${here[0].command}\`, torch ${here[0].torch}.${here[0].note ? ` ${here[0].note}` : ''}`,
      '',
    );
    lines.push(
      '| model | samples x tokens | rung | peak, MiB | of plain | samples/s | of plain | loss | gradients | weights |',
    );
    lines.push('|---|---|---|---|---|---|---|---|---|---|');
    for (const row of here) {
      const first = `| ${row.model} | ${row.samples} x ${row.tokens} | ${row.rung} |`;
      if (row.failed) {
        lines.push(`${first} failed: ${row.failed.replaceAll('|', '/')} | | | | | | |`);
        continue;
      }
      const base = here.find((other) => other.model === row.model && other.rung === 'as it stands' && !other.failed);
      const part = (name) => (base ? `${((100 * row[name]) / base[name]).toFixed(0)} %` : '');
      const figures = [
        (row.peak_bytes / 2 ** 20).toFixed(0),
        part('peak_bytes'),
        row.samples_per_s.toFixed(2),
        part('samples_per_s'),
      ];
      lines.push(
        `${first} ${[...figures, number(row.loss), number(row.gradients), number(row.weights)].join(' | ')} |`,
      );
    }
    lines.push('');
  }
  lines.push(
    'Loss, gradients and weights: largest relative difference from the script as it stands, of the loss of each step, and of the norm and a random',
    'projection of each parameter (its gradient in the first step, its value at the end; SGD with momentum, as AdamW makes a step of any rounding of a gradient that is 0). bf16 and 8 bits are another precision and claim no equality.',
    'Peaks: on a GPU what torch allocated; on the CPU the growth of resident memory. Samples/s: on the CPU of processor seconds.',
    '',
  );
  return lines.join('\n');
}

if (process.argv.includes('--report')) writeFileSync(TABLE, table(recorded()));
else process.stdout.write(table(told()));
