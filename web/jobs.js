import { actionButtons } from './actions.js';
import { announce, h, keyed, oncePerFrame, setAttribute, setText } from './dom.js';
import { ago, clean, isEnded, outcome, seconds, tone, took } from './format.js';

const PAGE = 50;
const RANKS = { running: 0, searching: 1, queued: 2, held: 3 };
const TABS = [
  { name: 'open', label: 'Open', has: ({ state }) => !isEnded(state) },
  { name: 'waiting', label: 'Waiting', has: ({ state }) => state === 'queued' || state === 'held' },
  { name: 'working', label: 'Working', has: ({ state }) => state === 'running' || state === 'searching' },
  { name: 'ended', label: 'Ended', has: ({ state }) => isEnded(state) },
  { name: 'all', label: 'All', has: () => true },
];
const COLUMNS = ['State', 'Job', 'Where it stands', 'Device', 'Micro-batch', 'Submitted', 'Took', 'Steer'];

/** The list of jobs: one page of it is in the document, however many there are. */
export function jobsPart() {
  const rows = new Map();
  let tab = 'open';
  let at = 0;
  let drawn = false;

  const body = h('tbody', {});
  const show = keyed(body, makeRow, ({ job }) => job);
  const empty = h('p', { class: 'void', hidden: true });
  const search = h('input', {
    type: 'search',
    placeholder: 'Name, id, reason',
    'aria-label': 'Find jobs',
    oninput: () => draw(0),
  });
  const whose = h('select', { 'aria-label': 'Whose jobs', hidden: true, onchange: () => draw(0) });
  const tabs = TABS.map(({ name, label }) => {
    const button = h(
      'button',
      { type: 'button', 'aria-pressed': String(name === tab), onclick: () => choose(name) },
      label,
    );
    return { name, label, button };
  });
  const back = h('button', { type: 'button', onclick: () => draw(at - 1) }, 'Back');
  const forth = h('button', { type: 'button', onclick: () => draw(at + 1) }, 'On');
  const place = h('span', { role: 'status' });
  const pager = h('nav', { class: 'pager', 'aria-label': 'Pages of jobs' }, back, forth, place);
  const head = h(
    'tr',
    {},
    COLUMNS.map((text, n) => h('th', { scope: 'col', class: n > 3 && n < 7 ? 'num' : null }, text)),
  );
  const table = h('table', { class: 'jobs', 'aria-labelledby': 'jobs-title' }, h('thead', {}, head), body);
  const element = h(
    'section',
    { class: 'sheet', 'aria-labelledby': 'jobs-title' },
    h(
      'header',
      {},
      h('h2', { id: 'jobs-title' }, 'Jobs'),
      h(
        'div',
        { class: 'tabs', role: 'group', 'aria-label': 'Which jobs' },
        tabs.map(({ button }) => button),
      ),
      h('span', { class: 'grow' }),
      whose,
      search,
    ),
    h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-labelledby': 'jobs-title' }, table),
    empty,
    pager,
  );

  function choose(name) {
    tab = name;
    for (const one of tabs) setAttribute(one.button, 'aria-pressed', String(one.name === name));
    draw(0);
  }

  function draw(page = at) {
    const words = search.value.trim().toLowerCase();
    const every = [...rows.values()];
    const owners = [...new Set(every.map(({ owner }) => owner ?? ''))].sort();
    offer(whose, owners);
    const all = owners.length < 2 || whose.value === '' ? every : every.filter(({ owner }) => owner === whose.value);
    for (const { name, label, button } of tabs)
      setText(button, `${label} ${all.filter(TABS.find((one) => one.name === name).has).length}`);
    const { has } = TABS.find(({ name }) => name === tab);
    const chosen = all.filter((row) => has(row) && (words === '' || matches(row, words))).sort(compare);
    const pages = Math.max(1, Math.ceil(chosen.length / PAGE));
    at = Math.min(Math.max(0, page), pages - 1);
    const shown = chosen.slice(at * PAGE, (at + 1) * PAGE);
    show(shown.map((row) => ({ ...row, shownOwner: owners.length < 2 ? '' : (row.owner ?? '') })));
    empty.hidden = chosen.length > 0 || !drawn;
    setText(empty, all.length === 0 ? 'No jobs yet. `oomtune submit -- python train.py` queues one.' : 'No such jobs.');
    back.disabled = at === 0;
    forth.disabled = at === pages - 1;
    pager.hidden = pages === 1;
    setText(place, `${at * PAGE + 1} to ${at * PAGE + shown.length} of ${chosen.length}`);
  }

  const later = oncePerFrame(draw);

  const slash = (event) => {
    if (event.key !== '/' || event.target instanceof HTMLInputElement) return;
    event.preventDefault();
    search.focus();
  };
  document.addEventListener('keydown', slash);
  const clock = setInterval(later, 5000);

  return {
    element,
    update({ full, rows: changed, gone }) {
      if (full) rows.clear();
      for (const row of changed) {
        const before = rows.get(row.job);
        if (before !== undefined && before.state !== row.state) announce(`${row.name}, ${row.job}: ${row.state}.`);
        rows.set(row.job, row);
      }
      for (const job of gone) rows.delete(job);
      if (full && !drawn && ![...rows.values()].some(({ state }) => !isEnded(state)) && rows.size > 0) choose('all');
      drawn = true;
      later();
    },
    close() {
      clearInterval(clock);
      document.removeEventListener('keydown', slash);
    },
  };
}

/** The owners to choose from, where there are several. */
function offer(select, owners) {
  const words = ['', ...owners.filter(Boolean)];
  select.hidden = owners.length < 2;
  if ([...select.options].map(({ value }) => value).join('\n') === words.join('\n')) return;
  const chosen = select.value;
  select.replaceChildren(...words.map((value) => h('option', { value }, value === '' ? 'Everybody' : clean(value))));
  select.value = words.includes(chosen) ? chosen : '';
}

const matches = ({ job, name, owner, reason, host, failure, state }, words) =>
  `${job} ${name} ${owner ?? ''} ${reason ?? ''} ${host ?? ''} ${failure ?? ''} ${state}`.toLowerCase().includes(words);

/** Those that work first, then the queue in its order, then the latest that ended. */
function compare(a, b) {
  const [one, two] = [RANKS[a.state] ?? 9, RANKS[b.state] ?? 9];
  if (one !== two) return one - two;
  if (one === 9) return a.ended_at < b.ended_at ? 1 : -1;
  if (a.priority !== b.priority) return b.priority - a.priority;
  return a.submitted_at < b.submitted_at ? -1 : 1;
}

function standing(row) {
  if (row.cancelling) return row.reason ?? 'is being cancelled';
  if (row.reason) return clean(row.reason);
  if (row.failure) return outcome(row.failure);
  if (row.state === 'exhausted') return 'nothing fits, even the smallest batch';
  if (row.state === 'failed' && row.exit_code !== null) return `exit code ${row.exit_code}`;
  return '';
}

function makeRow({ job }) {
  const state = h('span', { class: 'state' });
  const name = h('a', { href: `#/jobs/${job}`, class: 'name' });
  const owner = h('span', { class: 'id owner' });
  const reason = h('td', { class: 'reason' });
  const device = h('td', { class: 'now quiet' });
  const batch = h('td', { class: 'num' });
  const submitted = h('td', { class: 'num quiet' });
  const duration = h('td', { class: 'num quiet' });
  const buttons = actionButtons(job, 'small');
  const element = h(
    'tr',
    { 'data-job': job },
    h('td', {}, state),
    h('td', {}, name, h('span', { class: 'id' }, job), owner),
    ...[reason, device, batch, submitted, duration],
    h('td', {}, buttons.element),
  );
  return {
    element,
    update(row) {
      setText(state, row.cancelling ? 'cancelling' : row.state);
      setAttribute(state, 'data-tone', tone(row.state));
      setText(name, clean(row.name));
      setText(owner, clean(row.shownOwner));
      setText(reason, standing(row));
      setText(device, row.host === null ? '' : [row.host, row.devices.join(', ')].filter(Boolean).join(' '));
      setText(
        batch,
        row.micro_batch === null ? '' : `${row.micro_batch}${row.accumulation > 1 ? ` × ${row.accumulation}` : ''}`,
      );
      setText(submitted, ago(row.submitted_at));
      const time = took(row.started_at, row.ended_at);
      setText(duration, time === null ? '' : seconds(time));
      buttons.update(actionsFor(row));
    },
  };
}

function actionsFor({ state, cancelling, host }) {
  if (isEnded(state)) return ['retry'];
  const actions = cancelling ? [] : ['cancel'];
  if (state === 'held') actions.unshift('release');
  if (state === 'queued' && host === null) actions.unshift('hold');
  return actions;
}
