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

/** A page with the peers' finders side by side. */
export function gpuSummary(title, command, python, card, rows) {
  const peer = (row, kind) => {
    const one = row.finders.find((item) => item.finder === kind);
    return one ? `${one.found ?? 'failed'} (${one.attempts ?? '?'}, ${round(one.seconds)} s)` : '';
  };
  const lines = rows.map((row) => {
    const cells = [
      row.workload,
      row.amp === 'off' ? 'fp32' : row.amp,
      row.found ?? 'none',
      row.truth,
      row.share === null ? '' : `${round(row.share * 100)} %`,
      row.config ?? '',
      row.speed_share === undefined ? '' : `${round(row.speed_share * 100)} %`,
      `${row.launches} (${row.probes})`,
      round(row.search_s),
      round(row.bare_s),
      round(row.starts, 2),
      row.holds_200_steps === null ? '' : row.holds_200_steps ? 'yes' : 'NO',
      peer(row, 'accelerate'),
      peer(row, 'power'),
      peer(row, 'binsearch'),
      `${row.bisection_attempts}, ${round(row.bisection_s)} s`,
    ];
    return `| ${cells.join(' | ')} |`;
  });
  return `# ${title}

${conditions(command, python, card)}

\`found\` is find-batch's \`max_micro_batch\` on the script as it stands; \`largest\` is the largest size that a fresh process takes for
three optimizer steps. \`speed\` is the samples/s of the recommended size (\`config\`) against the best of the sweep. \`starts\` is (search
time - probed steps) / (one bare launch of the script to its third step). \`holds\`: 200 optimizer steps in another fresh process at the
size found. Peers: size found (attempts, seconds with the start of the process).

| workload | precision | found | largest | share | config | speed | launches (probes) | search s | bare s | starts | holds | accelerate | Lightning power | Lightning binsearch | fresh processes |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
${lines.join('\n')}
`;
}

export function record(name, rows, text) {
  const folder = join(ROOT, 'bench', 'results');
  mkdirSync(folder, { recursive: true });
  writeFileSync(
    join(folder, `${name}.jsonl`),
    `${rows.map((row) => JSON.stringify(row).replaceAll(ROOT, '')).join('\n')}\n`,
  );
  writeFileSync(join(folder, `${name}.md`), text);
}
