import { h, keyed, setAttribute, setText } from './dom.js';
import { bytes, clean } from './format.js';

/** Title, class, and what a narrow page puts before the figure. */
const COLUMNS = [
  ['Device', 'id', ''],
  ['Memory', 'memory', ''],
  ['Used', 'num', 'used'],
  ['Reserved', 'num', 'reserved'],
  ['Free for new jobs', 'num', 'free'],
  ['Busy', 'num busy', 'busy'],
  ['Held by', 'who', ''],
];
/** Holders that a line names; the others come on demand. */
const NAMED = 2;

/** A line for each device: its memory, what a new job could have of it, and who holds it. */
export function devicesPart() {
  const body = h('tbody', { role: 'rowgroup' });
  const summary = h('p', {});
  const head = h(
    'tr',
    { role: 'row' },
    COLUMNS.map(([text, kind]) => h('th', { role: 'columnheader', scope: 'col', class: kind }, text)),
  );
  const table = h(
    'table',
    { class: 'devices', role: 'table', 'aria-labelledby': 'devices-title' },
    h('thead', { role: 'rowgroup' }, head),
    body,
  );
  const legend = h(
    'p',
    { class: 'legend' },
    ...['used', 'reserved', 'other'].map((kind) =>
      h('span', {}, h('span', { class: `key ${kind}` }), kind === 'other' ? 'used by others' : kind),
    ),
  );
  const element = h('section', { class: 'sheet', 'aria-labelledby': 'devices-title' });
  element.append(
    h('header', {}, h('h2', { id: 'devices-title' }, 'Devices'), summary, h('span', { class: 'grow' }), legend),
    table,
  );
  const show = keyed(body, makeDevice, ({ host, id, uuid }) => `${host} ${uuid ?? id}`);
  return {
    element,
    update({ hosts, devices }) {
      setText(summary, summaryOf(hosts, devices));
      const several = new Set(devices.map(({ host }) => host)).size > 1;
      const mixed = new Set(gpusOf(devices).map(kindOf)).size > 1;
      const owners = new Set(devices.flatMap(({ holders }) => holders.map(({ owner }) => owner))).size > 1;
      const told = (holder) => ({ ...holder, owner: owners ? holder.owner : null });
      show(devices.map((device) => ({ ...device, several, mixed, holders: device.holders.map(told) })));
    },
  };
}

const gpusOf = (devices) => devices.filter(({ id }) => id !== 'cpu');
const kindOf = ({ model, total_bytes: total }) => `${model}, ${bytes(total)}`;

/** `8 × NVIDIA H200, 141 GiB; not heard: node3`. */
function summaryOf(hosts, devices) {
  const words = [];
  const gpus = gpusOf(devices);
  const kinds = new Set(gpus.map(kindOf));
  if (kinds.size === 1) words.push(`${gpus.length} × ${[...kinds][0]}${gpus.length === 1 ? '' : ' each'}`);
  const gone = hosts.filter(({ alive }) => !alive).map(({ host }) => host);
  if (hosts.length > 1) words.push(`${hosts.length - gone.length} of ${hosts.length} hosts are heard`);
  if (gone.length > 0) words.push(`not heard: ${gone.join(', ')}`);
  return words.join('; ');
}

function makeDevice({ id }) {
  const cell = (kind, label) => h('td', { role: 'cell', class: kind, 'data-label': label });
  const heading = h('th', { role: 'rowheader', scope: 'row', class: 'id' });
  const name = h('span', {});
  const model = h('span', { class: 'quiet small' });
  heading.append(name, model);
  const [bar, used, reserved, free, busy, who] = COLUMNS.slice(1).map(([, kind, label]) => cell(kind, label));
  const parts = { used: h('div', { class: 'fill' }), other: h('div', { class: 'fill other' }) };
  const kept = h('div', { class: 'fill reserved' });
  const meter = h('div', { class: 'meter', role: 'meter', 'aria-valuemin': '0' }, parts.used, parts.other, kept);
  bar.append(meter);
  const list = h('ul', { class: 'holders', 'aria-label': `Who holds ${id}` });
  const more = h('button', { type: 'button', class: 'more', 'aria-expanded': 'false' });
  const note = h('p', { class: 'note' });
  who.append(list, more, note);
  const showWho = keyed(list, makeHolder, ({ key }) => key);
  let open = false;
  let latest = null;
  const element = h('tr', { role: 'row', class: 'device' }, heading, bar, used, reserved, free, busy, who);
  more.addEventListener('click', () => {
    open = !open;
    draw();
  });

  function draw() {
    const all = holdersOf(latest);
    const rest = all.length - NAMED;
    showWho(open || rest < 1 ? all : all.slice(0, NAMED));
    list.hidden = all.length === 0;
    more.hidden = rest < 1;
    setText(more, open ? 'fewer' : `and ${rest} more`);
    setAttribute(more, 'aria-expanded', String(open));
    setAttribute(more, 'aria-label', open ? `fewer that hold ${id}` : `and ${rest} more that hold ${id}`);
  }

  return {
    element,
    update(device) {
      latest = device;
      const { used_bytes: use, total_bytes: all, reserved_bytes: booked } = device;
      setText(name, device.several ? `${device.host} ${device.id}` : device.id);
      setText(model, device.mixed || device.id === 'cpu' ? ` ${bytes(all)}` : '');
      setAttribute(heading, 'title', `${device.model}, ${bytes(all)}`);
      const foreign = device.processes.reduce((sum, one) => sum + (one.ours ? 0 : one.used_bytes), 0);
      parts.used.style.width = `${part(use ?? 0, all)}%`;
      parts.other.style.width = `${part(Math.min(foreign, use ?? 0), all)}%`;
      parts.other.style.left = `${part(Math.max(0, (use ?? 0) - foreign), all)}%`;
      kept.style.width = `${part(booked, all)}%`;
      kept.hidden = booked === 0;
      setText(used, bytes(use));
      setText(reserved, booked === 0 ? '—' : bytes(booked));
      setText(free, device.fault ? '—' : device.free_bytes === 0 ? 'none' : bytes(device.free_bytes));
      setText(busy, device.utilisation_pct === null ? '—' : `${device.utilisation_pct} %`);
      setAttribute(meter, 'aria-label', `Memory of ${device.id}`);
      setAttribute(meter, 'aria-valuemax', all);
      setAttribute(meter, 'aria-valuenow', use ?? 0);
      setAttribute(meter, 'aria-valuetext', `${bytes(use)} used, ${bytes(booked)} reserved, of ${bytes(all)}`);
      setText(note, device.fault ? `The driver calls it broken: ${device.fault}` : (device.note ?? ''));
      note.hidden = note.textContent === '';
      draw();
    },
  };
}

const part = (value, all) => (all > 0 ? Math.min(100, (value / all) * 100).toFixed(2) : 0);
const isJob = (owner) => /^j-[a-z0-9]{4,32}$/.test(owner);

const holdersOf = ({ holders, processes }) => [
  ...holders.map(({ job, name, owner, bytes: size }) => ({
    key: `lease ${job}`,
    text: clean(name ?? job),
    job: isJob(job) ? job : null,
    amount: [owner === null ? null : clean(owner), size === null ? 'all of it' : bytes(size)]
      .filter(Boolean)
      .join(', '),
  })),
  ...processes
    .filter((one) => !one.ours)
    .map(({ pid, name, used_bytes: size }) => ({
      key: `pid ${pid}`,
      text: `${clean(name).split('/').at(-1) || 'a process'} (pid ${pid})`,
      job: null,
      amount: `not ours, ${bytes(size)}`,
    })),
];

function makeHolder({ text, job }) {
  const name = job === null ? h('span', {}, text) : h('a', { href: `#/jobs/${job}` }, text);
  const amount = h('span', { class: 'amount' });
  return { element: h('li', {}, name, ' ', amount), update: (holder) => setText(amount, holder.amount) };
}
