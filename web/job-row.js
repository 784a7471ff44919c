import { actionButtons } from './actions.js';
import { h, setAttribute, setText } from './dom.js';
import { ago, bytesOf, clean, isEnded, number, outcome, span, tone, took } from './format.js';

/** The columns of the list: title, class, and what to sort by (`down`: the largest first). */
export const COLUMNS = [
  { title: 'State', kind: 'state-cell', sort: null },
  { title: 'Name', kind: 'name', sort: ({ name }) => name.toLowerCase() },
  { title: 'Owner', kind: 'owner', sort: ({ owner }) => owner ?? '' },
  { title: 'Priority', kind: 'priority num', sort: ({ priority }) => priority, down: true },
  { title: 'Progress or reason', kind: 'reason', sort: null },
  { title: 'Memory', kind: 'memory num', sort: ({ memory_bytes: held }) => held, down: true },
  { title: 'Samples/s', kind: 'speed num', sort: ({ samples_per_s: speed }) => speed, down: true },
  { title: 'Where', kind: 'where', sort: (row) => whereOf(row, true) || null },
  { title: 'Micro-batch', kind: 'batch num', sort: ({ micro_batch: size }) => size, down: true },
  { title: 'For', kind: 'for num', sort: (row) => took(row.started_at ?? row.submitted_at, row.ended_at), down: true },
];

/** `context`: which jobs are chosen and which are open, and whom to tell when that changes. */
export function jobRow({ job }, context) {
  const cells = new Map(COLUMNS.map(({ kind }) => [kind.split(' ')[0], h('td', { role: 'cell', class: kind })]));
  const pick = h('input', { type: 'checkbox', onchange: () => context.choose(job, pick.checked) });
  const more = h('button', { type: 'button', class: 'unfold', onclick: () => context.unfold(job) });
  const state = h('span', { class: 'state' });
  const name = h('a', { href: `#/jobs/${job}` });
  const progress = progressPart();
  const buttons = actionButtons(job, 'small');
  const detail = h('td', { role: 'cell', class: 'detail', hidden: true });
  cells.get('state-cell').append(state);
  cells.get('name').append(name);
  cells.get('reason').append(progress.element);
  const element = h(
    'tr',
    { role: 'row', 'data-job': job },
    h('td', { role: 'cell', class: 'pick' }, pick, more),
    ...cells.values(),
    h('td', { role: 'cell', class: 'steer' }, buttons.element),
    detail,
  );
  return {
    element,
    update(row) {
      const label = `${clean(row.name)}, ${job}`;
      const open = context.isOpen(job);
      setAttribute(element, 'aria-rowindex', row.rowIndex);
      setAttribute(element, 'data-phase', phaseOf(row));
      setAttribute(pick, 'aria-label', `Choose ${label}`);
      pick.checked = context.isChosen(job);
      setAttribute(more, 'aria-label', `More of ${label}`);
      setAttribute(more, 'aria-expanded', String(open));
      setText(state, row.cancelling ? 'cancelling' : row.state);
      setAttribute(state, 'data-tone', tone(row.state));
      setText(name, clean(row.name));
      setText(cells.get('owner'), clean(row.owner ?? ''));
      setText(cells.get('priority'), row.priority === 0 ? '' : String(row.priority));
      progress.update(row);
      setText(cells.get('memory'), row.memory_bytes === null ? '' : bytesOf(row.memory_bytes, row.budget_bytes));
      setText(cells.get('speed'), row.samples_per_s === null ? '' : number(row.samples_per_s));
      setText(cells.get('where'), whereOf(row, row.severalHosts));
      setText(
        cells.get('batch'),
        row.micro_batch === null ? '' : `${row.micro_batch}${row.accumulation > 1 ? ` × ${row.accumulation}` : ''}`,
      );
      setText(cells.get('for'), span(took(row.started_at ?? row.submitted_at, row.ended_at)));
      buttons.update(actionsFor(row));
      detail.hidden = !open;
      if (open) fill(detail, row);
    },
  };
}

const phaseOf = ({ state }) =>
  isEnded(state) ? 'ended' : state === 'running' || state === 'searching' ? 'working' : 'waiting';

/** `cuda:0, 1`, with the host where there are several. */
export function whereOf({ host, devices }, withHost) {
  if (host === null) return '';
  const [first = ''] = devices;
  const kind = first.split(':')[0];
  const same = devices.every((device) => device.startsWith(`${kind}:`));
  const numbers = devices.map((device) => Number(device.split(':')[1]));
  const inRow = numbers.length > 2 && numbers.every((n, at) => at === 0 || n === numbers[at - 1] + 1);
  const ids = !same ? devices.join(', ') : `${kind}:${inRow ? `${numbers[0]}-${numbers.at(-1)}` : numbers.join(', ')}`;
  return [withHost ? host : null, ids].filter(Boolean).join(' ');
}

/** How far a job is that runs, or why it is where it is. */
function progressPart() {
  const fill = h('span', { class: 'fill' });
  const bar = h('span', { class: 'progress', 'aria-hidden': 'true' }, fill);
  const text = h('span', { class: 'text' });
  return {
    element: h('div', { class: 'standing' }, bar, text),
    update(row) {
      const part = partDone(row);
      bar.hidden = part === null;
      if (part !== null) fill.style.width = `${(100 * part).toFixed(1)}%`;
      setText(text, standing(row));
    },
  };
}

/** By the time that the like of it took; null: none has ended well yet. */
function partDone({ state, started_at: from, expected_s: expected }) {
  if (state !== 'running' || expected === null || expected <= 0) return null;
  return Math.min(1, took(from, null) / expected);
}

function standing(row) {
  const { state, failure, evidence, summary, step } = row;
  if (row.cancelling) return clean(row.reason ?? 'is being cancelled');
  if (failure !== null)
    return [outcome(failure), evidence === null ? null : clean(evidence)].filter(Boolean).join(': ');
  if (state === 'queued') return [place(row.position), clean(row.called(summary ?? ''))].filter(Boolean).join(': ');
  if (summary) return clean(row.called(summary));
  if (state === 'running') return progressWords(row);
  if (state === 'exhausted') return 'nothing fits, even the smallest batch';
  if (state === 'failed' && row.exit_code !== null) return `exit code ${row.exit_code}`;
  return step === null ? '' : `step ${number(step)}`;
}

function progressWords(row) {
  const part = partDone(row);
  const step = row.step === null ? null : `step ${number(row.step)}`;
  if (part === null) return step ?? '';
  const left = row.expected_s - took(row.started_at, null);
  return left > 0 ? `${span(left)} left` : ['longer than before', step].filter(Boolean).join(', ');
}

/** `3rd in the queue` */
export function place(position) {
  if (position === null) return '';
  const tens = position % 100;
  const ending = tens > 10 && tens < 14 ? 'th' : (['th', 'st', 'nd', 'rd'][position % 10] ?? 'th');
  return `${number(position)}${ending} in the queue`;
}

/** All of a row that its line has no room for. */
function fill(detail, row) {
  const lines = [
    [row.job, `submitted ${ago(row.submitted_at)}`, row.owner && `by ${clean(row.owner)}`, `priority ${row.priority}`],
    [
      clean(row.name),
      row.step === null ? null : `step ${number(row.step)}`,
      partDone(row) === null
        ? null
        : `${Math.floor(100 * partDone(row))} % of the ${span(row.expected_s)} that it took before`,
    ],
  ].map((words) => words.filter(Boolean).join(' · '));
  const texts = [...new Set([row.reason, row.evidence])].filter(Boolean).map(clean);
  const shown = JSON.stringify([lines, texts]);
  if (detail.dataset.shown === shown) return;
  detail.dataset.shown = shown;
  detail.replaceChildren(
    ...lines.map((line) => h('p', { class: 'quiet' }, line)),
    ...texts.map((text) => h('p', { class: 'evidence' }, text)),
  );
}

export function actionsFor({ state, cancelling, host }) {
  if (isEnded(state)) return ['retry'];
  const actions = cancelling ? [] : ['cancel'];
  if (state === 'held') actions.push('release');
  if (state === 'queued' && host === null) actions.push('hold');
  if ((state === 'queued' || state === 'held') && host === null) actions.push('edit');
  return actions;
}
