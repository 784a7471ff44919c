#!/usr/bin/env node
/** The page of a replay: node bench/sharing/report.mjs bench/results/sharing-gpu.jsonl > bench/results/sharing-gpu.md */
import { readFileSync } from 'node:fs';
import { argv } from 'node:process';
import { fileURLToPath } from 'node:url';

const number = (value, digits = 1) => (value === null || !Number.isFinite(value) ? 'unknown' : value.toFixed(digits));
const gib = (bytes) => (bytes === null ? 'unknown' : `${(bytes / 2 ** 30).toFixed(2)} GiB`);
const less = (now, before) => `${Math.abs(100 * (1 - now / before)).toFixed(1)} % ${now <= before ? 'less' : 'MORE'}`;

/** Rows of the JSON lines → Markdown. */
export function page(rows) {
  const run = rows.find(({ row }) => row === 'run');
  const kinds = rows.filter(({ row }) => row === 'kind');
  const recorded = rows.find(({ row }) => row === 'recorded');
  const modes = rows.filter(({ row }) => row === 'mode').sort((a, b) => (a.mode < b.mode ? -1 : 1));
  const jobs = rows.filter(({ row }) => row === 'job');
  const exclusive = modes.find(({ mode }) => mode === 'exclusive');
  const packed = modes.find(({ mode }) => mode === 'packed');
  const counts = new Map();
  for (const job of jobs.filter(({ mode }) => mode === modes[0]?.mode))
    counts.set(job.kind, (counts.get(job.kind) ?? 0) + 1);
  const alone = sum(
    jobs
      .filter(({ mode }) => mode === modes[0]?.mode)
      .map((job) => job.steps / kinds.find(({ kind }) => kind === job.kind).steps_per_s),
  );
  const lines = [
    `# ${run.jobs} jobs on one GPU: alone, and side by side${run.dry ? ' (dry: no GPU)' : ''}`,
    '',
    `- Command: \`${run.command}\``,
    `- oomtune ${run.oomtune}, Node ${run.node}, torch ${run.torch}`,
    `- ${run.gpu}; ${run.cpu}, ${run.memory_gib} GiB`,
    `- ${run.date}`,
    '',
    `The trace (seed ${run.seed}) and the programs are described in [bench/sharing/README.md](../sharing/README.md). All jobs arrive within ${run.arriveSeconds} s;`,
    `at the pace that each kind has alone, their steps take ${number(alone, 0)} s.`,
    run.together
      ? 'Both modes ran at once, each on a GPU of its own with a daemon, a Redis and cores of its own.'
      : 'The modes ran one after the other.',
    '',
  ];
  if (exclusive && packed && exclusive.missing + packed.missing === 0)
    lines.push(
      `**Packed: makespan ${less(packed.makespan_s, exclusive.makespan_s)}, mean completion ${less(packed.mean_completion_s, exclusive.mean_completion_s)}, ${packed.oom_errors} out-of-memory errors** (exclusive: ${exclusive.oom_errors}).`,
      '',
    );
  const table = [
    ['jobs that succeeded', (mode) => `${mode.succeeded} of ${mode.jobs}`],
    ['makespan', (mode) => `${number(mode.makespan_s)} s`],
    ['mean time to completion', (mode) => `${number(mode.mean_completion_s)} s`],
    ['median, 95 %', (mode) => `${number(mode.median_completion_s)} s, ${number(mode.p95_completion_s)} s`],
    ['mean wait before the start', (mode) => `${number(mode.mean_wait_s)} s`],
    ['out-of-memory errors', (mode) => mode.oom_errors],
    ['launched more than once', (mode) => mode.relaunched],
    ['starts of programs, in sum', (mode) => `${number(mode.starts_s)} s`],
    ['training, in sum', (mode) => `${number(mode.trained_s)} s`],
    ['optimizer steps', (mode) => mode.steps],
    ['GPU busy (a kernel ran), mean', (mode) => (mode.gpu ? `${number(mode.gpu.busy_pct, 0)} %` : 'unknown')],
    [
      'GPU memory in use, mean and most',
      (mode) =>
        mode.gpu?.memory_mean_mib
          ? `${number(mode.gpu.memory_mean_mib / 1024)}, ${number(mode.gpu.memory_most_mib / 1024)} GiB`
          : 'unknown',
    ],
  ];
  if (modes.length > 0)
    lines.push(
      `| | ${modes.map(({ mode }) => mode).join(' | ')} |`,
      `|---|${modes.map(() => '---').join('|')}|`,
      ...table.map(([name, cell]) => `| ${name} | ${modes.map(cell).join(' | ')} |`),
      '',
    );
  for (const cut of rows.filter(({ row }) => row === 'unfinished')) lines.push(atLeast(cut, jobs, packed), '');
  for (const { kind, state } of rows.filter(({ row }) => row === 'left out'))
    lines.push(`${kind} could not be recorded (${state}) and is left out.`, '');
  for (const mode of modes.filter(({ not_succeeded }) => not_succeeded.length > 0))
    lines.push(`${mode.mode}: not succeeded: ${mode.not_succeeded.join('; ')}.`, '');
  if (kinds.length > 0)
    lines.push(
      `Before the replay one job of each kind ran, so that its configuration and its peak were recorded: ${number(recorded?.seconds ?? null, 0)} s on ${recorded?.gpus} GPU${recorded?.gpus === 1 ? '' : 's'}, in no figure above.`,
      '',
      '| kind | jobs | recorded peak | allocated by torch | steps/s alone | start | recording |',
      '|---|---|---|---|---|---|---|',
      ...kinds.map(
        (one) =>
          `| ${one.kind} | ${counts.get(one.kind) ?? 0} | ${gib(one.peak_bytes)} | ${gib(one.torch_peak_bytes)} | ${number(one.steps_per_s, 2)} | ${number(one.start_s)} s | ${number(one.seconds)} s |`,
      ),
      '',
    );
  return lines.join('\n');
}

/** What a mode that was cut off would have taken at least: one after the other, what was left starts and trains no faster than any did. */
function atLeast({ mode, ended, after_s: after, why }, jobs, packed) {
  const others = jobs.filter((job) => job.mode === packed?.mode);
  const left = others.length - ended;
  const quickest = Math.min(...others.map((job) => job.start_s));
  const least = after + left * quickest;
  return (
    `**${mode} was not run to its end** (${why}): after ${number(after, 0)} s ${ended} of ${others.length} jobs had ended. It takes one job after the other, and the quickest start of any was ` +
    `${number(quickest)} s: the ${left} that were left would have taken ${number(left * quickest, 0)} s to start alone, ${number(least, 0)} s in all at least. That bound is reckoned, not measured; by it packed takes ${less(packed.makespan_s, least)}, ` +
    `and ${less(packed.makespan_s, after)} than the seconds after which ${mode} had yet to end. ` +
    'Nearly all of what packing gains here is starts side by side, which weigh more in a trace whose hours became seconds.'
  );
}

const sum = (values) => values.reduce((total, value) => total + value, 0);

if (argv[1] === fileURLToPath(import.meta.url)) {
  const lines = readFileSync(argv[2], 'utf8').trim().split('\n');
  process.stdout.write(page(lines.map((line) => JSON.parse(line))));
}
