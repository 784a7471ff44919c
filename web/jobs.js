import { ORDER, steer, WORDS } from './actions.js';
import { announce, h, oncePerFrame, setAttribute, setText } from './dom.js';
import { choosesJobs, readFilters, writeFilters } from './filters.js';
import { clean, isEnded } from './format.js';
import { actionsFor, COLUMNS, jobRow } from './job-row.js';
import { windowed } from './windowed.js';

const RANKS = { running: 0, searching: 1, queued: 2, held: 3 };
const TABS = [
  { name: 'open', label: 'Open', has: ({ state }) => !isEnded(state) },
  { name: 'running', label: 'Running', has: ({ state }) => state === 'running' || state === 'searching' },
  { name: 'queued', label: 'Queued', has: ({ state }) => state === 'queued' || state === 'held' },
  { name: 'ended', label: 'Ended', has: ({ state }) => isEnded(state) },
  { name: 'all', label: 'All', has: () => true },
];

/** The list of jobs: those rows are in the document that can be seen, however many there are. */
export function jobsPart() {
  const rows = new Map();
  const chosen = new Set();
  const open = new Set();
  const filters = readFilters();
  let listed = [];
  let drawn = false;

  const empty = h('p', { class: 'void', hidden: true });
  const search = h('input', {
    type: 'search',
    placeholder: 'Name, id, reason',
    'aria-label': 'Find jobs',
    value: filters.find,
    oninput: () => set({ find: search.value }),
  });
  const whose = h('select', {
    'aria-label': 'Whose jobs',
    hidden: true,
    onchange: () => set({ owner: whose.value }),
  });
  const tabs = TABS.map(({ name, label, has }) => {
    const button = h('button', { type: 'button', onclick: () => set({ show: name }) }, label);
    return { name, label, has, button };
  });
  const all = h('input', { type: 'checkbox', 'aria-label': 'Choose all that are listed', onchange: chooseAll });
  const heads = COLUMNS.map((column) => headOf(column, () => sortBy(column)));
  const head = h(
    'tr',
    { role: 'row', 'aria-rowindex': '1' },
    h('th', { role: 'columnheader', scope: 'col', class: 'pick' }, all),
    heads.map(({ element }) => element),
    h('th', { role: 'columnheader', scope: 'col', class: 'steer' }, 'Steer'),
  );
  const table = h(
    'table',
    { class: 'jobs', role: 'table', 'aria-labelledby': 'jobs-title' },
    h('thead', { role: 'rowgroup' }, head),
  );
  const list = windowed(table, (item) => jobRow(item, context), { key: ({ job }) => job, open });
  const count = h('p', { class: 'count' });
  const bulkButtons = ORDER.map((name) => {
    const button = h('button', { type: 'button', class: name === 'cancel' ? 'small danger' : 'small' }, WORDS[name]);
    button.addEventListener('click', () => steerChosen(name, button));
    return { name, button };
  });
  const none = h('button', { type: 'button', class: 'small plain', onclick: chooseNone }, 'Choose none');
  const bulk = h(
    'div',
    { class: 'bulk', role: 'group', 'aria-label': 'The chosen jobs', hidden: true },
    count,
    bulkButtons.map(({ button }) => button),
    none,
  );
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
    bulk,
    table,
    empty,
  );
  const context = {
    isChosen: (job) => chosen.has(job),
    isOpen: (job) => open.has(job),
    choose(job, yes) {
      if (yes) chosen.add(job);
      else chosen.delete(job);
      drawBulk();
    },
    unfold(job) {
      if (!open.delete(job)) open.add(job);
      list.draw();
    },
  };

  function set(changes) {
    Object.assign(filters, changes);
    writeFilters(filters);
    draw();
  }

  /** The largest or the first, then the other way round, then as the queue goes. */
  function sortBy({ kind, down = false }) {
    const name = kind.split(' ')[0];
    const [first, second] = down ? [`-${name}`, name] : [name, `-${name}`];
    set({ sort: filters.sort === first ? second : filters.sort === second ? '' : first });
  }

  function chooseAll() {
    for (const { job } of listed) {
      if (all.checked) chosen.add(job);
      else chosen.delete(job);
    }
    draw();
  }

  function chooseNone() {
    chosen.clear();
    draw();
    all.focus();
  }

  async function steerChosen(name, button) {
    const jobs = listed.filter((row) => chosen.has(row.job) && actionsFor(row).includes(name)).map(({ job }) => job);
    button.disabled = true;
    await steer(name, jobs).finally(() => {
      button.disabled = false;
      draw();
    });
  }

  function drawBulk() {
    const picked = listed.filter(({ job }) => chosen.has(job));
    bulk.hidden = picked.length === 0;
    setText(count, `${picked.length} ${picked.length === 1 ? 'job' : 'jobs'} chosen`);
    for (const { name, button } of bulkButtons) {
      const able = picked.filter((row) => actionsFor(row).includes(name)).length;
      button.hidden = able === 0;
      setText(button, able === picked.length ? WORDS[name] : `${WORDS[name]} ${able}`);
    }
    all.checked = picked.length > 0 && picked.length === listed.length;
    all.indeterminate = picked.length > 0 && picked.length < listed.length;
  }

  function draw() {
    const every = [...rows.values()];
    const owners = [...new Set(every.map(({ owner }) => owner ?? ''))].sort();
    offer(whose, owners, filters.owner);
    const ofOwner = filters.owner === '' ? every : every.filter(({ owner }) => owner === filters.owner);
    for (const { name, label, has, button } of tabs) {
      setText(button, `${label} ${ofOwner.filter(has).length}`);
      setAttribute(button, 'aria-pressed', String(name === filters.show));
    }
    const words = filters.find.trim().toLowerCase();
    const { has } = tabs.find(({ name }) => name === filters.show) ?? tabs[0];
    const { column, order } = orderOf(filters.sort);
    for (const one of heads) one.update(one.column === column ? order.direction : null);
    const places = positions(every);
    const names = new Map(every.map(({ job, name }) => [job, name]));
    const called = (text) => text.replace(/\bj-[a-z0-9]{4,32}\b/g, (id) => names.get(id) ?? id);
    const severalHosts = new Set(every.map(({ host }) => host).filter(Boolean)).size > 1;
    listed = ofOwner
      .filter((row) => has(row) && (words === '' || matches(row, words)))
      .sort(order)
      .map((row) => ({ ...row, position: places.get(row.job) ?? null, called, severalHosts }));
    const seen = new Set(listed.map(({ job }) => job));
    for (const job of chosen) if (!seen.has(job)) chosen.delete(job); // what is not listed is not steered
    setAttribute(table, 'data-owners', owners.length > 1);
    setAttribute(
      table,
      'data-priorities',
      every.some(({ priority }) => priority !== 0),
    );
    table.hidden = listed.length === 0;
    list.set(listed);
    drawBulk();
    empty.hidden = listed.length > 0 || !drawn;
    setText(
      empty,
      every.length === 0 ? 'No jobs yet. `oomtune submit -- python train.py` queues one.' : 'No such jobs.',
    );
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
      const allEnded = rows.size > 0 && ![...rows.values()].some(({ state }) => !isEnded(state));
      if (full && !drawn && allEnded && !choosesJobs()) set({ show: 'all' });
      drawn = true;
      later();
    },
    close() {
      clearInterval(clock);
      list.close();
      document.removeEventListener('keydown', slash);
    },
  };
}

function headOf(column, onclick) {
  const { title, kind, sort } = column;
  const button = sort === null ? title : h('button', { type: 'button', onclick }, title);
  const element = h('th', { role: 'columnheader', scope: 'col', class: kind }, button);
  return { element, column, update: (direction) => setAttribute(element, 'aria-sort', direction) };
}

/** The owners to choose from, where there are several. */
function offer(select, owners, chosen) {
  const words = ['', ...new Set([...owners, chosen].filter(Boolean))];
  select.hidden = owners.length < 2 && chosen === '';
  if ([...select.options].map(({ value }) => value).join('\n') !== words.join('\n'))
    select.replaceChildren(...words.map((value) => h('option', { value }, value === '' ? 'Everybody' : clean(value))));
  if (select.value !== chosen) select.value = chosen;
}

const matches = ({ job, name, owner, reason, host, failure, evidence, state }, words) =>
  `${job} ${name} ${owner ?? ''} ${reason ?? ''} ${host ?? ''} ${failure ?? ''} ${evidence ?? ''} ${state}`
    .toLowerCase()
    .includes(words);

/** Those that work first, then the queue in its order, then the latest that ended. */
function asQueued(a, b) {
  const [one, two] = [RANKS[a.state] ?? 9, RANKS[b.state] ?? 9];
  if (one !== two) return one - two;
  if (one === 9) return a.ended_at < b.ended_at ? 1 : -1;
  if (a.priority !== b.priority) return b.priority - a.priority;
  return a.submitted_at < b.submitted_at ? -1 : 1;
}

/** By what the address names; rows of which that is not known come last, either way. */
function orderOf(sort) {
  const name = sort.replace(/^-/, '');
  const column = COLUMNS.find(({ kind, sort: value }) => value !== null && kind.split(' ')[0] === name) ?? null;
  if (column === null) return { column, order: asQueued };
  const sign = sort.startsWith('-') ? -1 : 1;
  const order = (a, b) => {
    const [one, two] = [column.sort(a), column.sort(b)];
    if (one === two) return asQueued(a, b);
    if (one === null || two === null) return one === null ? 1 : -1;
    return one < two ? -sign : sign;
  };
  order.direction = sign === 1 ? 'ascending' : 'descending';
  return { column, order };
}

/** Of each job that is queued, its place among them: by priority, and among equals by when it was submitted. */
const positions = (every) =>
  new Map(
    every
      .filter(({ state }) => state === 'queued')
      .sort(asQueued)
      .map(({ job }, at) => [job, at + 1]),
  );
