import { h, setText } from './dom.js';
import { ago, bytes, clean, number, quoted, seconds, span, took } from './format.js';
import { place, whereOf } from './job-row.js';

/** What a job is and how it goes: figures, its folder, what it waits for, its launches, and its commands. */
export function factsPart() {
  const facts = h('dl', { class: 'facts' });
  const lines = h('dl', { class: 'lines' });
  const element = h('section', { class: 'sheet', 'aria-label': 'Facts' }, facts, lines);
  const cells = new Map();
  const line = lineMaker(lines);
  return {
    element,
    update(job) {
      for (const [name, value, more] of factsOf(job)) {
        if (!cells.has(name)) {
          const cell = { value: document.createTextNode(''), more: h('small', {}), box: null };
          cell.box = h('div', {}, h('dt', {}, name), h('dd', {}, cell.value, cell.more));
          cells.set(name, cell);
          facts.append(cell.box);
        }
        const cell = cells.get(name);
        cell.box.hidden = value === null || value === '—';
        if (cell.value.data !== (value ?? '')) cell.value.data = value ?? '';
        setText(cell.more, more ?? '');
      }
      line('Folder', clean(job.cwd), (text) => [h('span', { class: 'mono' }, text)]);
      line('Waits for', job.dependencies, (jobs) => jobs.flatMap(dependency));
      line('Launches', job.launches.length === 0 ? null : launchesOf(job), (all) => [
        h(
          'ol',
          { class: 'launches' },
          all.map((text) => h('li', {}, text)),
        ),
      ]);
      line('Command', job.command, (argv) => [code(argv)]);
      line('To repeat it', job.repeat, (argv) => [code(argv), copyButton(argv.map(wordOf).join(' '))]);
    },
  };
}

/** A function that shows a line, and makes it anew only where what it shows has changed. */
function lineMaker(list) {
  const shown = new Map();
  return (name, what, make) => {
    const none = what === null || what.length === 0;
    const text = JSON.stringify(what);
    if (!shown.has(name)) {
      const value = h('dd', {});
      const box = h('div', { hidden: none }, h('dt', {}, name), value);
      list.append(box);
      shown.set(name, { box, value, text: null });
    }
    const known = shown.get(name);
    known.box.hidden = none;
    if (none || known.text === text) return;
    known.text = text;
    known.value.replaceChildren(...make(what));
  };
}

const wordOf = (word) => quoted(clean(word));

/** A command of which a line ends between two words, and not behind the dashes of an option. */
const code = (argv) =>
  h(
    'code',
    {},
    argv.flatMap((word, at) => [at === 0 ? '' : ' ', h('span', {}, wordOf(word))]),
  );

function dependency({ job, name, state, must_succeed: must }, at) {
  const words = `${state ?? 'forgotten'}, ${must ? 'to succeed' : 'to end'}`;
  return [at === 0 ? '' : '; ', h('a', { href: `#/jobs/${job}` }, clean(name ?? job)), ` (${words})`];
}

/** `1 to 6: search`, `7: runs at micro-batch 48 × 2`, `8: runs at micro-batch 42 × 2, stepped down from 48`. */
export function launchesOf({ launches, steps }) {
  const words = [];
  let before = null;
  for (let at = 0; at < launches.length; at += 1) {
    const { launch, purpose } = launches[at];
    if (purpose === 'search') {
      let last = at;
      while (launches[last + 1]?.purpose === 'search') last += 1;
      const end = launches[last].launch;
      const sizes = steps.filter((step) => step.launch >= launch && step.launch <= end).length;
      const which = end === launch ? `${launch}` : `${launch} to ${end}`;
      words.push(`${which}: search, ${sizes} ${sizes === 1 ? 'size' : 'sizes'}`);
      at = last;
      continue;
    }
    const { micro_batch: size, accumulation } = launches[at];
    const config =
      size === null ? 'as it stands' : `at micro-batch ${size}${accumulation > 1 ? ` × ${accumulation}` : ''}`;
    const why =
      before === null
        ? ''
        : size !== null && before.micro_batch !== null && size < before.micro_batch
          ? `, stepped down from ${before.micro_batch}`
          : ', launched again';
    words.push(`${launch}: runs ${config}${why}`);
    before = launches[at];
  }
  return words;
}

function copyButton(text) {
  const button = h('button', { type: 'button', class: 'small' }, 'Copy');
  button.setAttribute('aria-label', 'Copy the command to repeat it');
  button.addEventListener('click', async () => {
    const done = await navigator.clipboard?.writeText(text).then(
      () => true,
      () => false,
    );
    if (!done) {
      // Without TLS a browser gives pages no clipboard: it is marked to be copied by hand
      getSelection().selectAllChildren(button.previousElementSibling);
    }
    setText(button, done ? 'Copied' : 'Selected');
    setTimeout(() => setText(button, 'Copy'), 2000);
  });
  return button;
}

function factsOf(job) {
  const { config, started_at: from, ended_at: to, figures, launches } = job;
  const time = took(from ?? job.submitted_at, to);
  const begun = launches.length > 0;
  return [
    ['Micro-batch', config === null ? '—' : String(config.micro_batch), largestWords(job)],
    [
      'Effective batch',
      config === null ? '—' : String(config.effective_batch),
      config === null ? null : `${config.micro_batch} × ${config.accumulation} × ${config.world_size}`,
    ],
    ['Knobs', config === null ? '—' : knobsOf(config).join(', ') || 'as it stands', null],
    ...memoryFacts(job),
    ...speedFacts(job),
    figures.step === null && figures.expected_s === null ? ['Progress', null] : progressFact(job, time),
    ['Where', whereOf(job, true) || '—', null],
    [
      'Queue',
      job.position === null ? null : place(job.position).replace(' in the queue', ''),
      begun ? null : 'in the queue',
    ],
    ['Priority', String(job.priority), null],
    ['Owner', job.owner === null ? null : clean(job.owner), null],
    ['Submitted', ago(job.submitted_at), `at ${hour(new Date(job.submitted_at))}`],
    [
      'For',
      time === null ? '—' : seconds(time),
      job.exit_code !== null
        ? `exit code ${job.exit_code}`
        : job.time_limit_s === null
          ? null
          : `of ${span(job.time_limit_s)} at most`,
    ],
  ];
}

const knobsOf = ({ amp, checkpointing, checkpointed_blocks: blocks, offload }) =>
  [
    amp === 'off' ? null : amp,
    checkpointing ? `checkpointing${blocks ? ` of blocks ${blocks}` : ''}` : null,
    offload ? 'offload' : null,
  ].filter(Boolean);

/** That nothing larger fits is said only where the next size was tried. */
function largestWords({ config, recommendation: found }) {
  if (config === null || found === null) return null;
  const { max_micro_batch: most, known_bad_micro_batch: bad } = found;
  if (bad === null || bad === undefined) return `${most} fits, none larger was tried`;
  return bad === most + 1 ? `at most ${most} fits` : `${most} fits, ${bad} does not`;
}

function memoryFacts(job) {
  const { memory_bytes: held, budget_bytes: limit } = job.figures;
  const peak = peakOf(job);
  const budget = job.budget_bytes ?? limit;
  return [
    ['Peak', bytes(peak), budget === null ? null : `of ${bytes(budget)}`],
    ['Holds now', held === null ? null : bytes(held), null],
  ];
}

function speedFacts(job) {
  const now = job.figures.samples_per_s;
  const found = speedOf(job);
  return [
    ['Speed', found === null ? '—' : number(found), found === null ? null : 'samples/s in the search'],
    ['Speed now', now === null ? null : number(now), 'samples/s'],
  ];
}

/** How far it is, and when it ends by how long the like of it took. */
function progressFact({ figures: { step, expected_s: expected } }, time) {
  const name = 'Progress';
  if (expected === null || time === null) return [name, `step ${number(step)}`, null];
  const left = expected - time;
  const steps = step === null ? null : `step ${number(step)}`;
  if (left <= 0) return [name, 'longer than before', steps ?? `it took ${span(expected)}`];
  const at = new Date(Date.now() + left * 1000);
  return [name, `${span(left)} left`, [`ends at ${hour(at)}`, steps].filter(Boolean).join(', ')];
}

const hour = (at) => at.toLocaleTimeString(undefined, { hour: '2-digit', minute: '2-digit', hour12: false });

/** What the ladder shows of the size and the rung that the job runs at; of a recorded configuration what its record says. Null: not measured. */
function speedOf({ config, recommendation: found, steps }) {
  if (config === null) return null;
  const same = (one) =>
    one.micro_batch === config.micro_batch &&
    one.amp === config.amp &&
    one.checkpointing === config.checkpointing &&
    (one.checkpointed_blocks || '') === (config.checkpointed_blocks || '') &&
    Boolean(one.offload) === Boolean(config.offload);
  const speeds = steps
    .filter((one) => one.outcome === 'fit' && same(one) && one.samples_per_s)
    .map((one) => one.samples_per_s);
  const recorded = found !== null && same(found) ? found.samples_per_s : null;
  return speeds.includes(recorded) ? recorded : (speeds.at(-1) ?? recorded);
}

function peakOf({ config, recommendation, memory, steps }) {
  if (memory !== null && config !== null && memory.micro_batch === config.micro_batch) return memory.peak_bytes;
  if (recommendation !== null && config !== null && recommendation.micro_batch === config.micro_batch)
    return recommendation.peak_bytes;
  const peaks = steps.flatMap(({ outcome: word, peak_bytes: peak }) => (word === 'fit' && peak !== null ? [peak] : []));
  return peaks.length === 0 ? null : Math.max(...peaks);
}
