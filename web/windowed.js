import { h, keyed, oncePerFrame } from './dom.js';

/** Rows kept beyond what is seen, so that a quick scroll meets some. */
const SPARE = 10;

/**
 * Puts only those rows into the document that can be seen, between two that stand for all others. Rows are of one height,
 * which is measured; those in `open` may be higher. `make` as in `keyed`.
 */
export function windowed(table, make, { key, open }) {
  const body = h('tbody', { role: 'rowgroup' });
  const before = spacer();
  const after = spacer();
  table.append(before.element, body, after.element);
  const show = keyed(body, make, key);
  /** By key, how much higher an open row is than the others. */
  const extra = new Map();
  let items = [];
  let height = 31;
  let from = 0;
  let to = 0;

  const extraOf = (item) => (open.has(key(item)) ? (extra.get(key(item)) ?? 0) : 0);
  const extraBefore = (end) => {
    let sum = 0;
    if (open.size > 0) for (let at = 0; at < end; at += 1) sum += extraOf(items[at]);
    return sum;
  };

  function draw() {
    const start = before.element.getBoundingClientRect().top;
    const seenFrom = Math.max(0, -start);
    const seenTo = Math.max(0, innerHeight - start);
    const most = extraBefore(items.length);
    from = Math.max(0, Math.min(Math.floor((seenFrom - most) / height) - SPARE, items.length));
    to = Math.max(from, Math.min(items.length, Math.ceil(seenTo / height) + SPARE));
    show(items.slice(from, to).map((item, at) => ({ ...item, rowIndex: from + at + 2 })));
    before.set(from * height + extraBefore(from));
    after.set((items.length - to) * height + most - extraBefore(to));
  }

  /** Measures what is there, and draws again where it was thought to be of another height. */
  function settle() {
    draw();
    if (!measure()) return;
    draw();
    measure();
  }

  function measure() {
    let changed = false;
    for (const [at, row] of [...body.children].entries()) {
      const item = items[from + at];
      if (item === undefined) break;
      const seen = row.getBoundingClientRect().height;
      if (seen === 0) continue;
      if (open.has(key(item))) {
        if (extra.get(key(item)) !== seen - height) changed = true;
        extra.set(key(item), seen - height);
      } else if (Math.abs(seen - height) > 0.5) {
        height = seen;
        return true;
      }
    }
    return changed;
  }

  const later = oncePerFrame(settle);
  addEventListener('scroll', later, { passive: true });
  addEventListener('resize', later, { passive: true });

  return {
    set(next) {
      items = next;
      table.setAttribute('aria-rowcount', String(items.length + 1));
      settle();
    },
    draw: settle,
    close() {
      removeEventListener('scroll', later);
      removeEventListener('resize', later);
    },
  };
}

function spacer() {
  const cell = h('td', {});
  const element = h('tbody', { 'aria-hidden': 'true', class: 'spacer' }, h('tr', {}, cell));
  return {
    element,
    set(height) {
      cell.style.height = `${Math.max(0, height)}px`;
    },
  };
}
