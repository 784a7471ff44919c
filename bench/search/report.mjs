import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { cpus, release, totalmem } from 'node:os';
import { join } from 'node:path';
import { ROOT, torchVersion } from './oomtune.mjs';

const round = (value, digits = 1) => (value === null ? 'none' : value.toFixed(digits));

/** The machine and the versions that figures were taken with. */
export function conditions(command, python, gpu = null) {
  const oomtune = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')).version;
  const memory = Math.round(totalmem() / 1024 ** 3);
  return [
    `- Command: \`${command}\``,
    `- oomtune ${oomtune}, Node ${process.versions.node}, torch ${torchVersion(python)}, Linux ${release()}`,
    `- ${gpu ?? `${cpus().length} x ${cpus()[0].model}, ${memory} GiB`}`,
    `- ${new Date().toISOString().slice(0, 10)}`,
  ].join('\n');
}

/** A page with one row a workload and budget. */
export function summary(title, command, python, rows) {
  const lines = rows.map((row) => {
    const cells = [
      row.workload,
      row.budget,
      row.max_micro_batch ?? row.status,
      row.truth,
      `${round(row.share * 100)} %`,
      row.config ?? '',
      row.launches,
      row.probes,
      round(row.search_s),
      round(row.bare_s),
      round(row.starts, 2),
      row.bisection_attempts,
      round(row.bisection_s),
      row.holds_20_steps === null ? '' : row.holds_20_steps ? 'yes' : 'NO',
    ];
    return `| ${cells.join(' | ')} |`;
  });
  return `# ${title}

${conditions(command, python)}

\`found\` is find-batch's \`max_micro_batch\`; \`largest\` is what a bisection with a fresh process for each size finds, with loaders that
make real batches of that size. \`starts\` is (search time - probed steps) / (one bare launch of the script to its third step).
\`holds\`: the size found was run in another fresh process for 20 optimizer steps without running out of memory.

| workload | budget | found | largest | share | config | launches | probes | search s | bare s | starts | bisection launches | bisection s | holds |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
${lines.join('\n')}
`;
}

export function record(name, rows, text) {
  const folder = join(ROOT, 'bench', 'results');
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, `${name}.jsonl`), `${rows.map((row) => JSON.stringify(row)).join('\n')}\n`);
  writeFileSync(join(folder, `${name}.md`), text);
}
