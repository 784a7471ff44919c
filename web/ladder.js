import { h, keyed, setAttribute, setText } from './dom.js';
import { bytes, clean, number, outcome, outcomeTone, seconds } from './format.js';

const COLUMNS = ['Try', 'Launch', 'Micro-batch', 'Outcome', 'Peak', 'Step', 'Samples/s', 'Why, and the evidence'];

/** The search, probe by probe, as it grows; a heading for each rung. */
export function ladderPart() {
  const body = h('tbody', { role: 'rowgroup' });
  const show = keyed(
    body,
    (item) => (item.heading === undefined ? makeStep() : makeHeading()),
    ({ key }) => key,
  );
  const head = h(
    'tr',
    { role: 'row' },
    COLUMNS.map((text, n) =>
      h('th', { role: 'columnheader', scope: 'col', class: [2, 5, 6].includes(n) ? 'num' : null }, text),
    ),
  );
  const table = h(
    'table',
    { class: 'ladder', role: 'table', 'aria-labelledby': 'ladder-title' },
    h('thead', { role: 'rowgroup' }, head),
    body,
  );
  const about = h('p', {});
  const empty = h('p', { class: 'void' }, 'Nothing has been tried.');
  const element = h(
    'section',
    { class: 'sheet', 'aria-labelledby': 'ladder-title' },
    h('header', {}, h('h2', { id: 'ladder-title' }, 'Ladder'), about),
    table,
    empty,
  );
  return {
    element,
    update({ steps, budget_bytes: budget }) {
      const items = [];
      let rung = null;
      for (const step of steps) {
        if (step.rung !== rung) items.push({ key: `rung ${step.n}`, heading: step.rung });
        rung = step.rung;
        items.push({ key: `step ${step.n}`, step, budget });
      }
      show(items);
      empty.hidden = steps.length > 0;
      table.hidden = steps.length === 0;
      const launches = new Set(steps.map(({ launch }) => launch)).size;
      const tries = `${steps.length} ${steps.length === 1 ? 'size' : 'sizes'} in ${launches} ${launches === 1 ? 'launch' : 'launches'}`;
      setText(
        about,
        steps.length === 0 ? '' : `${tries}${budget === null ? '' : `, under a budget of ${bytes(budget)}`}`,
      );
    },
  };
}

function makeHeading() {
  const cell = h('td', { role: 'cell', colspan: String(COLUMNS.length) });
  return {
    element: h('tr', { role: 'row', class: 'rung' }, cell),
    update: ({ heading }) => setText(cell, `Rung: ${heading}`),
  };
}

function makeStep() {
  const td = (kind, label, ...children) => h('td', { role: 'cell', class: kind, 'data-label': label }, ...children);
  const cells = { n: td('n quiet', 'try'), launch: td('launch', 'launch'), size: td('size num', 'micro-batch') };
  const verdict = h('span', { class: 'state' });
  const peak = h('span', { class: 'amount' });
  const fill = h('span', { class: 'fill' });
  const part = h('span', { class: 'part', 'aria-hidden': 'true' }, fill);
  const step = td('step num', 'a step');
  const rate = td('rate num', 'samples/s');
  const why = h('span', {});
  const evidence = h('span', { class: 'evidence' });
  const element = h(
    'tr',
    { role: 'row' },
    ...[cells.n, cells.launch, cells.size],
    td('outcome', '', verdict),
    td('peak now', 'peak', peak, part),
    ...[step, rate],
    td('why', '', why, evidence),
  );
  return {
    element,
    update({ step: one, budget }) {
      setAttribute(element, 'data-outcome', one.outcome);
      setText(cells.n, String(one.n));
      setText(cells.launch, String(one.launch));
      setText(cells.size, `${one.micro_batch}${one.accumulation > 1 ? ` × ${one.accumulation}` : ''}`);
      setText(
        verdict,
        `${one.ambiguous ? 'probably ' : ''}${outcome(one.outcome)}${one.phase && one.phase !== 'train' && one.phase !== 'unknown' ? ` (${one.phase})` : ''}`,
      );
      setAttribute(verdict, 'data-tone', outcomeTone(one.outcome));
      setText(peak, one.peak_bytes === null ? '—' : bytes(one.peak_bytes));
      part.hidden = one.peak_bytes === null || !budget;
      if (!part.hidden) fill.style.width = `${Math.min(100, (one.peak_bytes / budget) * 100).toFixed(1)}%`;
      setText(step, seconds(one.step_s));
      setText(rate, number(one.samples_per_s));
      setText(
        why,
        [one.why, one.retries > 0 ? `the allocator retried ${one.retries} times` : null].filter(Boolean).join('; '),
      );
      setText(evidence, one.evidence === null ? '' : clean(one.evidence));
    },
  };
}
