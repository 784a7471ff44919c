/** The table of estimates beside measured peaks. */

const GIB = 1024 ** 3;
const gib = (bytes) => (bytes / GIB).toFixed(2);
const percent = (part) => `${part >= 0 ? '+' : '−'}${Math.abs(100 * part).toFixed(1)} %`;
const error = ({ estimate, truth }) => estimate / truth - 1;

const median = (numbers) => {
  const sorted = numbers.toSorted((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
};

function summary(rows) {
  const errors = rows.map(error);
  const low = errors.filter((part) => part < -0.05).length;
  const models = new Set(rows.map(({ of }) => of)).size;
  return (
    `| ${rows.length} | ${models} | ${(100 * median(errors.map(Math.abs))).toFixed(1)} % | ` +
    `${(100 * Math.max(...errors.map(Math.abs))).toFixed(1)} % | ${low} (${((100 * low) / rows.length).toFixed(0)} %) |`
  );
}

export function reportText(estimates, truth, args) {
  const done = estimates.filter((row) => row.estimate !== undefined);
  const failed = estimates.filter((row) => row.failed !== undefined);
  const searched = done.filter(({ kind }) => kind === 'search');
  const models = done.filter(({ kind }) => kind !== 'search');
  const groups = [
    ['peaks of recorded searches, up to 97 % of their 24 GiB', searched],
    ['models of bench/estimate/models.json', models],
    ['all', done],
  ].filter(([, rows]) => rows.length > 0);
  const torches = [...new Set(estimates.map(({ torch }) => torch))].join(', ');
  const gpus = [...new Set(truth.map(({ gpu, torch, date }) => `${gpu}, torch ${torch}, ${date}`))];
  const unmeasured = truth.filter(({ failed: why }) => why);
  return [
    '# Estimates without a GPU beside measured peaks',
    '',
    `- Command: \`node bench/estimate/run.mjs ${args.join(' ').replace(/--python \S+/, '--python python3')}\`; estimates with torch ${torches}, no GPU.`,
    '- Measured: `bench/results/search-gpu.jsonl` (one NVIDIA H200, torch 2.11.0+cu130), the whole process with its context.' +
      (gpus.length > 0
        ? ` Models: ${gpus.join('; ')}.`
        : ' No model of `models.json` has been measured yet: it takes a GPU.'),
    '',
    '`under`: estimates more than 5 % below what was measured. Errors are of the whole peak, |estimate / measured − 1|. Several sizes of one model',
    'are no independent trials: the number of models is what counts.',
    '',
    '| of | peaks | models | median | largest | under |',
    '|---|---|---|---|---|---|',
    ...groups.map(([name, rows]) => `| ${name} ${summary(rows)}`),
    '',
    '| model | precision | batch | measured GiB | estimate GiB | error |',
    '|---|---|---|---|---|---|',
    ...done.map(
      (row) =>
        `| ${row.of} | ${row.amp} | ${row.batch} | ${gib(row.truth)} | ${gib(row.estimate)} | ${percent(error(row))} |`,
    ),
    ...largest(searched),
    ...(failed.length === 0
      ? []
      : ['', '## Not estimated', '', ...failed.map(({ of, failed: why }) => `- ${of}: ${why}`)]),
    ...(unmeasured.length === 0
      ? []
      : ['', '## Not measured', '', ...unmeasured.map(({ name, failed: why }) => `- ${name}: ${why}`)]),
    '',
  ].join('\n');
}

/** The largest batch on 24 GiB: said, with 3 % left free, and found by a search, without. */
function largest(rows) {
  const seen = new Map();
  for (const row of rows) if (row.said_largest !== undefined) seen.set(`${row.of} ${row.amp}`, row);
  if (seen.size === 0) return [];
  return [
    '',
    '## The largest batch on 24 GiB',
    '',
    '`estimate` leaves 3 % free; `find-batch` is the largest that was run.',
    '',
    '| model | precision | estimate | find-batch | share |',
    '|---|---|---|---|---|',
    ...[...seen.values()].map(
      ({ of, amp, said_largest, largest: found }) =>
        `| ${of} | ${amp} | ${said_largest} | ${found} | ${((100 * said_largest) / found).toFixed(0)} % |`,
    ),
  ];
}
