import { h, keyed, oncePerFrame } from './dom.js';

/** Rows kept beyond what is seen, so that a quick scroll meets some. */
const SPARE = 16;
/** Of those, so few are left that more are put in. */
const SCARCE = 4;

/**
 * Puts only those rows into the document that can be seen, between two that stand for all others. Rows are of one height,
 * which is measured; those in `open` may be higher. `make` as in `keyed`.
 */
export function windowed(table, make, { key, open }) {
  const body = h('tbody', { role: 'rowgroup' });
  const before = spacer();
  const after = spacer();
  table.append(before.element, body, after.element);
  const show = keyed(body, (item) => lazily(make(item), () => round), key);
  /** Rows are written anew in the next one, whatever they show. */
  let round = 0;
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

  /** The rows that can be seen, and so many beyond. */
  function range(beyond) {
    const start = before.element.getBoundingClientRect().top;
    const most = extraBefore(items.length);
    const first = Math.floor((Math.max(0, -start) - most) / height) - beyond;
    const last = Math.ceil(Math.max(0, innerHeight - start) / height) + beyond;
    const at = Math.max(0, Math.min(first, items.length));
    return { at, end: Math.max(at, Math.min(items.length, last)), most };
  }

  function scrolled() {
    const { at, end } = range(SCARCE);
    if (at >= from && end <= to) return;
    if (open.size > 0) settle();
    else draw();
  }

  function draw() {
    const { at, end, most } = range(SPARE);
    from = at;
    to = end;
    show(items.slice(from, to));
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

  // To measure makes the browser lay out at once: while it is scrolled only where rows differ
  const onScroll = oncePerFrame(scrolled);
  const onResize = oncePerFrame(settle);
  addEventListener('scroll', onScroll, { passive: true });
  addEventListener('resize', onResize, { passive: true });

  return {
    set(next) {
      items = next.map((item, at) => ({ ...item, rowIndex: at + 2 }));
      table.setAttribute('aria-rowcount', String(items.length + 1));
      settle();
    },
    /** Writes what is seen anew: what the rows are told from outside of their items has changed. */
    draw() {
      round += 1;
      settle();
    },
    close() {
      removeEventListener('scroll', onScroll);
      removeEventListener('resize', onResize);
    },
  };
}

/** A part that is written only for another item, or in another round. */
function lazily({ element, update }, roundNow) {
  let last = null;
  let round = -1;
  return {
    element,
    update(item) {
      if (item === last && round === roundNow()) return;
      last = item;
      round = roundNow();
      update(item);
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
