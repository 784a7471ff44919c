import { h, keyed, setAttribute, setText } from './dom.js';
import { bytes } from './format.js';

const PHASES = { forward_backward: 'in forward and backward', optimizer: 'in the optimizer’s step' };

/** What fills the memory at its peak: a bar as long as the budget, and a list of the same parts with their figures. */
export function fillingPart() {
  const about = h('p', {});
  const bar = h('div', { class: 'stack', role: 'img' });
  const list = h('ul', { class: 'parts', 'aria-labelledby': 'filling-title' });
  const element = h(
    'section',
    { class: 'sheet', 'aria-labelledby': 'filling-title', hidden: true },
    h('header', {}, h('h2', { id: 'filling-title' }, 'What fills the memory'), about),
    h('div', { class: 'filling' }, bar, list),
  );
  const showBar = keyed(bar, makeSlice, ({ part }) => part);
  const showList = keyed(list, makeEntry, ({ part }) => part);
  return {
    element,
    update({ memory, config, budget_bytes: budget }) {
      element.hidden = memory === null;
      if (memory === null) return;
      const { peak_bytes: peak, micro_batch: size, accumulation, peak_in: phase, parts } = memory;
      const whole = Math.max(peak, budget ?? 0);
      const free = { part: 'free', name: 'free', bytes: whole - peak, remark: '' };
      const all = (budget === null ? parts : [...parts, free]).map((one) => ({ ...one, whole }));
      showBar(all);
      showList(all);
      const at = `At micro-batch ${size}${accumulation > 1 ? ', accumulating' : ''}`;
      const other = config === null || config.micro_batch === size ? '' : ', the nearest that was measured';
      const of = budget === null ? '' : ` of ${bytes(budget)}`;
      setText(about, `${at}${other}: ${bytes(peak)}${of}${phase === null ? '' : `, the peak ${PHASES[phase]}`}`);
      setAttribute(bar, 'aria-label', `A bar of the parts of ${bytes(peak)}${of}; the list below has their figures`);
    },
  };
}

const share = ({ bytes: size, whole }) => `${((100 * size) / whole).toFixed(1)} %`;

function makeSlice({ part }) {
  const element = h('div', { class: `slice ${part}` });
  return {
    element,
    update(one) {
      element.style.flexGrow = one.bytes;
      setAttribute(element, 'title', `${one.name}: ${bytes(one.bytes)}, ${share(one)}`);
    },
  };
}

function makeEntry({ part, name }) {
  const size = h('b', {});
  const more = h('small', {});
  const element = h('li', {}, h('span', { class: `key ${part}`, 'aria-hidden': 'true' }), `${name} `, size, more);
  return {
    element,
    update(one) {
      setText(size, bytes(one.bytes));
      setText(more, ` ${share(one)}${one.remark ? `, ${one.remark}` : ''}`);
    },
  };
}
