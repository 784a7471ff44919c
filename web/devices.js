import { h, keyed, setAttribute, setText } from './dom.js';
import { bytes, clean } from './format.js';

/** Every device with its memory, and who holds it. */
export function devicesPart() {
  const list = h('div', { class: 'devices' });
  const summary = h('p', {});
  const element = h('section', { class: 'sheet', 'aria-labelledby': 'devices-title' });
  element.append(h('header', {}, h('h2', { id: 'devices-title' }, 'Devices'), summary), list);
  const show = keyed(list, makeDevice, ({ host, id, uuid }) => `${host} ${uuid ?? id}`);
  return {
    element,
    update({ hosts, devices }) {
      const gone = hosts.filter(({ alive }) => !alive).map(({ host }) => host);
      const words = [];
      if (hosts.length > 1) words.push(`${hosts.length - gone.length} of ${hosts.length} hosts are heard`);
      if (gone.length > 0) words.push(`not heard: ${gone.join(', ')}`);
      setText(summary, words.join('; '));
      const many = new Set(devices.map(({ host }) => host)).size > 1;
      const several = new Set(devices.flatMap(({ holders }) => holders.map(({ owner }) => owner))).size > 1;
      const told = (holder) => ({ ...holder, owner: several ? holder.owner : null });
      show(devices.map((device) => ({ ...device, many, holders: device.holders.map(told) })));
    },
  };
}

function makeDevice({ id }) {
  const name = h('span', { class: 'name' });
  const model = h('span', { class: 'quiet' });
  const total = h('span', { class: 'total' });
  const used = h('div', { class: 'fill' });
  const strangers = h('div', { class: 'fill other' });
  const reserved = h('div', { class: 'fill reserved' });
  const meter = h('div', { class: 'meter', role: 'meter', 'aria-valuemin': '0' }, used, strangers, reserved);
  const usedText = h('b', {});
  const reservedText = h('b', {});
  const freeText = h('b', {});
  const strangersText = h('b', {});
  const strangersKey = h('span', {}, h('span', { class: 'key' }), 'by strangers ', strangersText);
  const legend = h(
    'div',
    { class: 'legend' },
    h('span', {}, h('span', { class: 'key used' }), 'used ', usedText),
    h('span', {}, h('span', { class: 'key reserved' }), 'reserved ', reservedText),
    h('span', {}, 'unused ', freeText),
    strangersKey,
  );
  const who = h('ul', { class: 'who', 'aria-label': `Who holds ${id}` });
  const note = h('p', { class: 'note' });
  const element = h('article', { class: 'device' });
  element.append(h('div', { class: 'row' }, name, model, total), meter, legend, who, note);
  const showWho = keyed(who, makeHolder, ({ key }) => key);
  return {
    element,
    update(device) {
      const { used_bytes: use, total_bytes: all, reserved_bytes: kept } = device;
      setText(name, device.many ? `${device.host} ${device.id}` : device.id);
      setText(model, device.model);
      setText(total, bytes(all));
      used.style.width = `${part(use ?? 0, all)}%`;
      reserved.style.width = `${part(kept, all)}%`;
      const foreign = device.processes.reduce((sum, one) => sum + (one.ours ? 0 : one.used_bytes), 0);
      strangers.style.width = `${part(Math.min(foreign, use ?? 0), all)}%`;
      strangers.style.left = `${part(Math.max(0, (use ?? 0) - foreign), all)}%`;
      strangersKey.hidden = foreign === 0;
      setText(strangersText, bytes(foreign));
      reserved.hidden = kept === 0;
      setText(usedText, bytes(use));
      setText(reservedText, kept === 0 ? 'none' : bytes(kept));
      setText(freeText, use === null ? '—' : bytes(Math.max(0, all - use)));
      setAttribute(meter, 'aria-label', `Memory of ${device.id}`);
      setAttribute(meter, 'aria-valuemax', all);
      setAttribute(meter, 'aria-valuenow', use ?? 0);
      setAttribute(meter, 'aria-valuetext', `${bytes(use)} used, ${bytes(kept)} reserved, of ${bytes(all)}`);
      showWho([...device.holders.map(ofLease), ...device.processes.filter((one) => !one.ours).map(ofStranger)]);
      who.hidden = who.childElementCount === 0;
      setText(note, device.fault ? `The driver calls it broken: ${device.fault}` : (device.note ?? ''));
      note.hidden = note.textContent === '';
    },
  };
}

const part = (value, all) => (all > 0 ? Math.min(100, (value / all) * 100).toFixed(2) : 0);
const isJob = (owner) => /^j-[a-z0-9]{4,32}$/.test(owner);
const ofLease = ({ job, owner, bytes: size, share }) => ({
  key: `lease ${job}`,
  text: job,
  job: isJob(job),
  amount: `${owner === null ? '' : `${clean(owner)} `}reserves ${size === null ? 'all of it' : bytes(size)}${share ? ', shares' : ''}`,
});
const ofStranger = ({ pid, name, used_bytes: size }) => ({
  key: `pid ${pid}`,
  text: `${clean(name) || 'a process'} (pid ${pid})`,
  job: false,
  amount: `uses ${bytes(size)}`,
});

function makeHolder({ text, job }) {
  const name = job ? h('a', { href: `#/jobs/${text}`, class: 'mono' }, text) : h('span', {}, text);
  const amount = h('span', { class: 'amount' });
  return { element: h('li', {}, name, amount), update: (holder) => setText(amount, holder.amount) };
}
