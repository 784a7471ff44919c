#!/usr/bin/env node
/** Makes bench/results/upstream.md from the lines that run.mjs recorded: node bench/upstream/report.mjs [FILE...] */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { cpus, totalmem } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ROOT } from '../search/oomtune.mjs';
import { ROWS } from './rows/index.mjs';
import { COMMITS } from './sources.mjs';

/** Whether a part of a row, by what it failed with, had no time left. */
export const isOutOfTime = (failed) => /^no time left/.test(failed);

/** Weights that are no further apart are those of the same training. */
export const ALIKE = 1e-3;
const RESULTS = join(ROOT, 'bench', 'results');

/** What a line was measured with. */
export function conditionsOf(python, device) {
  const ask = 'import sys, torch; print(torch.__version__, "%d.%d" % sys.version_info[:2])';
  const [torch, version] = spawnSync(python, ['-c', ask], { encoding: 'utf8' }).stdout.trim().split(' ');
  const gpu = spawnSync('nvidia-smi', ['--query-gpu=name,driver_version', '--format=csv,noheader'], {
    encoding: 'utf8',
  });
  const host = `${cpus().length} x ${cpus()[0].model}, ${Math.round(totalmem() / 1024 ** 3)} GiB`;
  const card = gpu.stdout?.split('\n')[0]?.replace(', ', ', driver ');
  const oomtune = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')).version;
  return {
    device,
    machine: device === 'cpu' ? host : card,
    torch,
    python: version,
    oomtune,
    date: new Date().toISOString().slice(0, 10),
  };
}

/** Packages and their versions in words. */
export function versionsOf(python, packages) {
  const ask =
    'import sys, importlib.metadata as m; print(", ".join("%s %s" % (p, m.version(p)) for p in sys.argv[1:]))';
  const done = spawnSync(python, ['-c', ask, ...packages], { encoding: 'utf8' });
  return done.status === 0 ? done.stdout.trim() : 'unknown versions';
}

const linesOf = (file) =>
  existsSync(file)
    ? readFileSync(file, 'utf8')
        .split('\n')
        .filter(Boolean)
        .map((line) => JSON.parse(line))
    : [];

/** Row by row, what stands in a record: the latest line of a part counts. What ran out of the time given to it was not measured. */
export function recorded(file) {
  const rows = new Map();
  for (const { row, part, value } of linesOf(file)) {
    const before = rows.get(row);
    const measured = isOutOfTime(value?.failed ?? '') ? {} : { [part]: value };
    // What judged another answer says nothing of this one.
    if (part === 'search' && value?.found !== before?.search?.found) measured.truth = undefined;
    // How far two runs of the program itself are apart is kept where only one was made since.
    if (part === 'alone' && value?.apart === null && before?.alone)
      measured.alone = { ...value, apart: before.alone.apart ?? null, same: before.alone.same ?? null };
    rows.set(row, { ...before, ...measured });
  }
  return rows;
}

const round = (value, digits = 1) => (typeof value === 'number' ? value.toFixed(digits) : '');
const short = (text) => (text ?? '').replaceAll(/\s+/g, ' ').replaceAll('|', '/').slice(0, 220).trim();

function apartOf(part) {
  if (part === undefined) return 'not measured';
  if (part === null) return '';
  if (part.failed) return `failed: ${short(part.failed)}`;
  if (part.exit !== 0) return `exit ${part.exit}: ${short(part.said)}`;
  if (part.same) return 'bit for bit';
  return part.apart === null ? 'no weights to compare' : `apart ${part.apart.toExponential(0)}`;
}

/** Where its cut is not the same for certain, `run` says so in one of these sentences. */
const DIFFERENT = /statistics|random numbers|weighed|running averages|loss scaler|run on the whole batch/;
const toldOf = (part) => (part?.told ?? []).filter((text) => DIFFERENT.test(text));

/** Whether a cut run ended at other weights than two runs of the program alone do by themselves, or one whose weights were moved by their last bits. */
const trainsOther = (part, alone) =>
  part?.diverged ||
  (part?.apart ?? 0) > Math.max(ALIKE, 10 * (alone?.apart ?? 0), 10 * (part?.rounding ?? 0)) ||
  (part?.steps ?? 6) < (alone?.steps ?? 0);

function cutOf(part, alone) {
  if (!part || part.failed || part.exit !== 0) return apartOf(part);
  if ((part.accumulation ?? 1) < 2)
    return `not cut: it fits ${Math.round(100 * part.share)} % of its peak; ${apartOf(part)}`;
  const where = part.cut === null ? 'by its own flags' : `at the ${part.cut}`;
  const told = trainsOther(part, alone) && toldOf(part).length > 0 ? `; told: "${short(toldOf(part)[0])}"` : '';
  const bits =
    part.rounding == null
      ? ''
      : `; alone, with each weight moved by its last bit: apart ${part.rounding.toExponential(0)}`;
  return `${part.micro_batch} x ${part.accumulation}, ${where}: ${part.diverged ? 'weights not finite' : apartOf(part)}${bits}${told}`;
}

/** Whether the answer is all that the program's data holds: no larger batch can be made of it, whatever the memory. */
const endsWithData = (row, search) => search?.found != null && search.found === (search.samples ?? row?.samples);

function truthOf(truth, search, row) {
  if (search?.failed || !search?.found) return '';
  if (endsWithData(row, search) && truth?.holds !== false)
    return `${truth?.holds ? 'holds; ' : ''}all ${search.found} samples of its data: the data is the limit`;
  if (truth === null) return 'not comparable';
  if (truth === undefined) return 'not measured';
  if (truth.failed) return `failed: ${short(truth.failed)}`;
  if (truth.holds && row?.lengths)
    return `holds for the longest samples; ${truth.largest_known} fits ten batches of a fresh process, whose samples are as they come`;
  const share = truth.largest_known > 0 ? ` (${round((100 * search.found) / truth.largest_known)} %)` : '';
  if (truth.more_fits === null) return 'holds; for 2 % more there was no time';
  if (truth.holds && !truth.more_fits) return 'holds; 2 % more does not';
  return truth.holds
    ? `holds; ${truth.largest_known} fits as well${share}`
    : `DOES NOT HOLD: ${truth.largest_known}${share}`;
}

/** Of a row whose first part, the program without oomtune, ended with an error of its own, which stands in its first cell. */
const FAILS_ALONE = 'none of oomtune: the program itself fails (its own error, in a run without oomtune)';

export function verdictOf({ alone, search, truth, stands, cut }, row) {
  if (alone?.failed) return FAILS_ALONE;
  const faults = [];
  if (search?.failed || (search && search.status !== 'found')) faults.push('search');
  if (truth && (truth.failed || !truth.holds || (truth.more_fits && !endsWithData(row, search) && !row?.lengths)))
    faults.push('truth');
  if (stands && (stands.failed || stands.exit !== 0 || (alone?.same !== false && !stands.same)))
    faults.push('as it stands');
  if (cut && (cut.failed || cut.exit !== 0)) faults.push('cut');
  else if (cut && trainsOther(cut, alone) && toldOf(cut).length === 0) faults.push('other weights, untold');
  return faults.length === 0 ? 'ok' : faults.join(', ');
}

function line(row, known, kind) {
  const { alone = {}, search = {}, truth, stands, cut, place } = known;
  const failed = place?.failed ?? alone.failed;
  const cells = [
    row.name,
    failed ? short(failed) : `${alone.own ?? row[kind]?.own ?? row.own ?? ''}`,
    search?.budget ?? '',
    search?.failed ? `failed: ${short(search.failed)}` : (search?.found ?? short(search?.said ?? search?.status)),
    truthOf(truth, search, row),
    search?.launches === undefined || search?.launches === null ? '' : `${search.launches} (${search.oom_launches})`,
    round(search?.search_s),
    round(alone.bare_s),
    search?.search_s && alone.bare_s ? round(search.search_s / alone.bare_s) : '',
    alone.same === false ? `twice alone: ${alone.apart?.toExponential(0)}; ${apartOf(stands)}` : apartOf(stands),
    cutOf(cut, alone),
    place?.failed ? 'could not be made ready here' : verdictOf(known, row),
  ];
  return `| ${cells.join(' | ')} |`;
}

function table(file) {
  const rows = recorded(file);
  const last = linesOf(file).at(-1);
  const measured = ROWS.filter(({ name }) => Object.keys(rows.get(name) ?? {}).length > 0);
  const verdicts = measured.map((row) => verdictOf(rows.get(row.name), row));
  const ok = verdicts.filter((verdict) => verdict === 'ok').length;
  const alone = verdicts.filter((verdict) => verdict === FAILS_ALONE).length;
  const dates = [...new Set(linesOf(file).map(({ date }) => date))].sort();
  const kind = last.device === 'cpu' ? 'cpu' : 'cuda';
  const lines = measured.map((row) => line(row, rows.get(row.name), kind));
  const missing = ROWS.filter((row) => kind in row && !measured.includes(row)).map(({ name }) => name);
  const beside = besideOf(measured, linesOf(file));
  const judged = ROWS.filter(({ name }) => rows.get(name)?.truth?.holds !== undefined).length;
  return `## ${last.device === 'cpu' ? 'The CPU device' : 'One GPU'}

${last.machine}; torch ${last.torch}, Python ${last.python}, oomtune ${last.oomtune}; ${dates.join(', ')}. ${lines.length} programs, ${judged} of them judged by fresh processes, ${ok} without a fault in what
was measured of them${alone > 0 ? `, ${alone} that fail by themselves` : ''}.${last.device === 'cpu' ? ON_CPU : ON_GPU}${missing.length > 0 ? ` Not run yet: ${missing.join(', ')}.` : ''}

| program | own batch | budget | found | in a fresh process | launches (OOM) | search s | bare s | × | \`run\` with room | \`run\` under a budget that cuts | faults |
|---|---|---|---|---|---|---|---|---|---|---|---|
${lines.join('\n')}
${beside === '' ? '' : `\n${beside}\n`}`;
}

/** How the rows of the CPU were measured. */
const ON_CPU =
  ' One or two at a time, at low priority, on two cores that others used as well: `nice node bench/upstream/run.mjs --sources DIR --python PYTHON --jax PYTHON --once --parts search,truth --row-minutes 5` (14 for U-Net), and `--parts alone,stands,cut` for six.';

/** How the rows of the GPU were measured. */
const ON_GPU =
  ' Searches and fresh processes of 2026-11-25 on an H100, twelve at a time on the one GPU, the rest on an H200, nine and six at a time, so that × compares seconds of two loads and two cards: `node bench/upstream/run.mjs --sources DIR --device cuda:0 --together 12 --minutes 8.9 --row-minutes 4 --parts search,truth --once`. Rows of 2026-11-26 on both, three to seven at a time, but those of pytorch/examples, minGPT, nanoGPT, timm, U-Net, PyTorch-GAN, the tutorials and PyG, which ran ten at a time on an H100, since a script that asks whether there is a GPU is forked (`--together 10 --minutes 8.6 --row-minutes 4 --parts search,truth --once`); those of transformers, accelerate and TRL with transformers 5.17.0, datasets 5.2.0 and TRL 1.16.0, where run_glue and run_glue_no_trainer (of 4.57.5) end by themselves: that transformers takes no numbers for the keys of `label2id`. Rows of 2026-11-27 on an H100, eight, three and five at a time (`--together 3 --minutes 8 --row-minutes 4 --parts alone,search,truth --once`; those of eight and five without `alone`, so that × compares two loads there); what gives back its cache had to last up to 200 steps or a minute in those of five (nanoGPT: 330 ran for ten steps and failed in the 14th), for ten in the others. Twenty-five rows ran later that day, eight or seven at a time and judged like those of five, with searches that go by what a step needs and by what lies in pieces (checks.md; three of timm before the latter was measured). Ten of these and of the rest were searched once more, alone on the GPU with a bare start (`--together 1 --parts alone,search --once`), so that their × compares one load; what they found is the same. Twelve ran once more at its end, seven at a time (`--together 7 --row-minutes 7 --parts search,truth --once`; U-Net two at a time): mnist, mnist_rnn, vae, siamese_network, dcgan, the Transformer, AlexNet and super_resolution of pytorch/examples, wgan, wgan_gp and relativistic_gan, U-Net. Rows of 2026-11-28 on an H200, five at a time, judged like those (`--together 5 --parts search,truth --once`): vae, siamese_network, super_resolution, lsgan, infogan, relativistic_gan, wgan and wgan_gp with searches that leave half as much again as lies in pieces, those of Lightning and of flax. Later that day, two to four at a time, the answers for the transformer of Lightning and for flax were judged, and wgan and wgan_gp searched anew, now that what lies in pieces is told of networks without convolutions, too. Before that wgan_gp was answered 23,248, which ran for 10 steps of a fresh process and failed in the 24th (22,783 lasted); it was 22,976, 22,227 and 22,623 in five searches since, of which none was judged for want of time. In the evening, four at a time beside others (`--together 4 --row-minutes 5 --parts search,truth --once`): mnist, mnist_rnn, siamese_network, AlexNet and super_resolution of pytorch/examples, relativistic_gan and U-Net, in whose answers half as much again as lies in pieces is left, as before; and vae was run under a budget that cuts it. Until the 27th NVML answered now and then so late that a process did not see up to 95 MiB of its kernels for seconds: sizes were proved then that do not hold (vae, 10,332), and failed that do. Two answers of the 27th did not hold: wgan, 34,555, had given back its cache in 40 steps and failed in the eleventh of another process (33,298 since, which does); the other, 6,873, is of XLA, whose autotuner takes other kernels in each process (6,630 since, which does). On 2026-11-29, eight and six at a time beside others on an H200, thirty-eight programs ran under a budget that cuts them (`--together 8 --row-minutes 4 --parts alone,cut --once`), now that gradients of a few samples are compared before the first cut: none was refused for that. Nothing fits three quarters of the peak of TRL dpo.py (weights and the moments of Adam take more) nor of gan (memory of CUDA itself), and the classifier of Lightning runs out of memory in its validation, whose batches are not cut; batch normalisation was told of for U-Net and squeezenet, too, U-Net on the line of a progress bar, where the table does not look. The weights of vit_b_16 are 1.0e-3 apart with TF32 and without it (`NVIDIA_TF32_OVERRIDE=0`), by rounding: sums of micro-batches are rounded otherwise than by one last bit, and its rate is 0.1. wgan_gp was searched once more beside them, and its answer lasted a minute. Twenty-six ran under such a budget once more that morning, eight at a time on another H200, with whole micro-batches looked at in the precision of the training before the 1st and the 4th cut call: twenty-one were cut at the model and none was refused; four fitted, and nanoGPT was cut by its own flags.';

/** What is no program as it stands, or ran with packages of its own. */
function besideOf(measured, lines) {
  const edits = measured.flatMap(({ name, edits = {} }) =>
    Object.entries(edits).map(
      ([file, pairs]) => `${name}: in ${file} ${pairs.map(([from, to]) => `\`${from}\` is \`${to}\``).join(' and ')}.`,
    ),
  );
  const constants = measured.flatMap(({ name, constant, own }) =>
    constant
      ? [`${name}: for the fresh process alone the ${own} of \`${constant[1].trim()}\` in ${constant[0]} is the size.`]
      : [],
  );
  const packages = new Map(lines.filter((one) => one.packages).map((one) => [one.row, one.packages]));
  return [...edits, ...constants, ...[...packages].map(([name, words]) => `${name}: with ${words}.`)].join(' ');
}

/** What is still to be measured, said on the page. */
const without = (kind, files) => files.every((file) => !file.endsWith(`-${kind}.jsonl`));

function page(files) {
  const commits = Object.entries(COMMITS).map(([repository, commit]) => `${repository} ${commit.slice(0, 10)}`);
  return `# Programs of others

Made by \`node bench/upstream/report.mjs\` from what \`node bench/upstream/run.mjs\` recorded. The programs are unmodified but where it is said below a table; data is made
for them and models have random weights. \`found\` is find-batch's largest size under the budget without mixed precision or
checkpointing; it is tried for ten optimizer steps in a fresh process that knows nothing of oomtune's hook, and so is 2 % more (two
samples at least; one in rows measured before 2026-11-23 12:00). \`bare\` is the program's own start to the end of its third optimizer step. The last columns compare the weights after
six optimizer steps with those of the program alone, as the largest relative difference of a tensor; 'twice alone' is what two
runs of the program differ by themselves.

${without('cuda', files) ? 'All rows so far ran on the CPU device; rows of a GPU are to follow.\n\n' : ''}${files.map(table).join('\n')}
Commits: ${commits.join(', ')}.
`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const given = process.argv.slice(2);
  const files = given.length > 0 ? given : ['cuda', 'cpu'].map((kind) => join(RESULTS, `upstream-${kind}.jsonl`));
  writeFileSync(join(RESULTS, 'upstream.md'), page(files.filter((file) => existsSync(file))));
}
