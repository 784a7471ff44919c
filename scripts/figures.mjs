#!/usr/bin/env node
/**
 * Writes the table of measured figures into the pages that show it, from bench/results/search-gpu.jsonl. `--check` writes
 * nothing, and fails where a page shows others.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT, say } from './setup/say.mjs';

const PAGES = ['README.md', 'docs/compare.md'];
const MARKS = /(<!-- figures -->\n)[\s\S]*?(<!-- \/figures -->)/;
const NAMES = { gpt2: 'GPT-2', resnet50: 'ResNet-50', vit: 'ViT-B/16', bert: 'BERT', unet: 'U-Net' };
const FINDERS = { accelerate: 'accelerate', power: 'Lightning, `power`', binsearch: 'Lightning, `binsearch`' };

const read = (file) => readFileSync(join(ROOT, file), 'utf8');
const mean = (numbers) => numbers.reduce((sum, one) => sum + one, 0) / numbers.length;
const cell = (found, seconds) => (found === null ? 'no answer' : `${found} in ${seconds.toFixed(1)} s`);

function table() {
  const rows = read('bench/results/search-gpu.jsonl')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
    .filter(({ finders, truth }) => finders?.length > 0 && truth);
  const others = Object.keys(FINDERS).map((name) => rows.map((row) => row.finders.find((one) => one.finder === name)));
  const ours = rows.map(({ found, search_s }) => ({ found, seconds: search_s }));
  const lines = rows.map((row, at) => {
    const cells = [ours, ...others].map((column) => cell(column[at].found, column[at].seconds));
    return [NAMES[row.workload] ?? row.workload, row.truth, ...cells];
  });
  const shares = [ours, ...others].map((column) => {
    const answered = column.flatMap(({ found }, at) => (found === null ? [] : [found / rows[at].truth]));
    const seconds = mean(column.map((one) => one.seconds));
    return `${(100 * mean(answered)).toFixed(0)} % in ${seconds.toFixed(0)} s`;
  });
  lines.push(['mean', '', ...shares]);
  const head = ['bf16', 'largest by trial', 'oomtune', ...Object.values(FINDERS)];
  return [head, head.map(() => '---'), ...lines].map((line) => `| ${line.join(' | ')} |`).join('\n');
}

/** Machine, versions and days, as the page of these results has them. */
function conditions() {
  const said = [...read('bench/results/search-gpu.md').matchAll(/^- (oomtune \d.*|NVIDIA .*|\d{4}-\d\d-\d\d.*)$/gm)];
  return said.map(([, line]) => line).join('; ');
}

const check = process.argv.includes('--check');
const small = `<sub>Made by \`node scripts/figures.mjs\` of what was measured: ${conditions()}.</sub>`;
const made = `\n${table()}\n\n${small}\n\n`;
for (const page of PAGES) {
  const text = read(page);
  if (!MARKS.test(text)) throw new Error(`${page} has no place for the figures.`);
  const next = text.replace(MARKS, (_all, begin, end) => `${begin}${made}${end}`);
  if (next === text) continue;
  if (check) {
    say(`${page} shows other figures. Run: node scripts/figures.mjs`);
    process.exitCode = 1;
  } else writeFileSync(join(ROOT, page), next);
}
