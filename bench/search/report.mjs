import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
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

/** Seconds of the optimizer steps of a search's probes; those of a size that failed are not known, and count as none. */
const stepsOf = ({ probes }) => probes.reduce((sum, { steps, step_s: seconds }) => sum + steps * (seconds ?? 0), 0);

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
      round(row.search_s / row.bare_s, 2),
      round((row.search_s - stepsOf(row.report)) / row.bare_s, 2),
      row.bisection_attempts,
      round(row.bisection_s),
      row.holds_20_steps === null ? '' : row.holds_20_steps ? 'yes' : 'NO',
    ];
    return `| ${cells.join(' | ')} |`;
  });
  return `# ${title}

${conditions(command, python)}

\`found\` is find-batch's \`max_micro_batch\`; \`largest\` is what a bisection with a fresh process for each size finds, with loaders that
make real batches of that size. \`wall / bare\` is the search's seconds over those of
one bare launch of the script to its third step; \`less steps / bare\` is the same without the seconds of the probes' own steps.
\`holds\`: the size found was run in another fresh process for 20 optimizer steps without running out of memory.

| workload | budget | found | largest | share | config | launches | probes | search s | bare s | wall / bare | less steps / bare | bisection launches | bisection s | holds |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
${lines.join('\n')}
`;
}

/** A page with the peers' finders side by side. `missed`: what there was no time for, or what failed. */
export function gpuSummary(title, command, python, card, rows, missed) {
  const peer = (row, kind) => {
    const one = row.finders.find((item) => item.finder === kind);
    return one ? `${one.found ?? 'failed'} (${one.attempts ?? '?'}, ${round(one.seconds)} s)` : '';
  };
  const or = (value, text) => (value === undefined || value === null ? '' : text(value));
  const lines = rows
    .filter((row) => row.workload)
    .map((row) => {
      const again = row.fits_above?.length > 0 ? ` (and ${row.fits_above.join(', ')})` : '';
      const cells = [
        row.workload,
        row.amp === 'off' ? 'fp32' : row.amp,
        row.found ?? 'none',
        or(row.truth, (truth) => `${truth}${again}`),
        or(row.share, (share) => `${round(share * 100)} %`),
        row.config ?? '',
        or(row.speed_share, (share) => `${round(share * 100)} %`),
        `${row.launches} (${row.oom_launches}; ${row.probes})`,
        round(row.search_s),
        round(row.bare_s),
        round(row.search_s / row.bare_s, 2),
        or(row.holds_200_steps, (holds) => (holds ? 'yes' : 'NO')),
        ...['accelerate', 'power', 'binsearch'].map((kind) => peer(row, kind)),
        or(row.bisection_attempts, (attempts) => `${attempts}, ${round(row.bisection_s)} s`),
      ];
      return `| ${cells.join(' | ')} |`;
    });
  const checks = rows
    .flatMap((row) => row.checks ?? [])
    .map(({ name, ok, said }) => `- ${name}: ${ok ? 'ok' : 'NOT OK'}; ${said}`);
  return `# ${title}

${conditions(command, python, card)}

\`found\` is find-batch's \`max_micro_batch\` on the script as it stands; \`largest\` is what a bisection with a fresh process of ten
optimizer steps for each size finds (and sizes above it that fit again). \`speed\` is the samples/s of the recommended size
(\`config\`) against the best of a sweep from 50 % to 100 %. \`launches\`: in all (those that ran out of memory; probes). \`wall / bare\`
is the search's seconds over those of one bare launch of the script to its third step. \`holds\`: 200 optimizer steps in another
fresh process at the size found. Peers: size found (attempts, seconds with the start of the process).

| workload | precision | found | largest | share | config | speed | launches | search s | bare s | wall / bare | holds | accelerate | Lightning power | Lightning binsearch | fresh processes |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
${lines.join('\n')}
${checks.length > 0 ? `\nFrom end to end, each with a job that runs to its own end:\n\n${checks.join('\n')}\n` : ''}${missed.length > 0 ? `\nNot measured: ${missed.join(', ')}.\n` : ''}`;
}

/** The rows of an earlier record. */
export function recorded(name) {
  const file = join(ROOT, 'bench', 'results', `${name}.jsonl`);
  if (!existsSync(file)) return [];
  return readFileSync(file, 'utf8')
    .trim()
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line));
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
