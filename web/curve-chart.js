import { axis, chartFrame, colour, memoryAxis } from './chart.js';
import { h } from './dom.js';
import { bytes } from './format.js';

const COLOURS = 5;
/** Steps of a scale of whole numbers: there is no half of a sample. */
const WHOLE = Array.from({ length: 8 }, (_, power) => [1, 2, 5].map((n) => n * 10 ** power)).flat();

/** Peak memory against micro-batch: the sizes that were tried, the model's line through them, the budget. */
export function curveChart() {
  const frame = chartFrame('curve-title', 'Peak memory by micro-batch', 'No size has been tried.');
  let shown = '';
  return {
    element: frame.element,
    close: frame.close,
    update({ curves, budget_bytes: budget }) {
      const text = JSON.stringify([curves, budget]);
      if (text === shown) return;
      shown = text;
      const some = curves.some(({ fits, failed }) => fits.length + failed.length > 0);
      const fits = curves.flatMap((curve) => curve.fits);
      const failed = curves.flatMap((curve) => curve.failed);
      frame.figure.dataset.fits = fits.length;
      frame.figure.dataset.failed = failed.length;
      frame.figure.dataset.lines = curves.filter(({ line }) => line !== null).length;
      frame.figure.dataset.budget = budget ?? '';
      frame.describe(some ? inWords(fits, failed, budget) : '');
      frame.caption.replaceChildren(...legend(curves, budget));
      frame.set(some ? () => drawing(curves, budget) : null);
    },
  };
}

function inWords(fits, failed, budget) {
  const largest = fits.reduce((best, one) => (one[0] > best[0] ? one : best), [0, 0]);
  return [
    `${fits.length} sizes fitted${fits.length > 0 ? `, the largest micro-batch ${largest[0]} with a peak of ${bytes(largest[1])}` : ''}.`,
    failed.length > 0 ? `Out of memory at micro-batch ${failed.join(', ')}.` : '',
    budget === null ? '' : `The budget is ${bytes(budget)}.`,
    'The ladder below holds every figure.',
  ].join(' ');
}

function legend(curves, budget) {
  const items = curves.map(({ rung }, at) => h('span', {}, h('span', { class: `swatch dot c${at % COLOURS}` }), rung));
  if (curves.some(({ line }) => line !== null))
    items.push(h('span', {}, h('span', { class: 'swatch c0' }), 'prediction'));
  if (budget !== null)
    items.push(h('span', { class: 'cbad' }, h('span', { class: 'swatch dash' }), `budget ${bytes(budget)}`));
  if (curves.some(({ failed }) => failed.length > 0)) {
    items.push(
      h(
        'span',
        { class: 'cbad' },
        h('span', { class: 'cross', 'aria-hidden': 'true' }, '✕'),
        'out of memory (how much it needed is not known)',
      ),
    );
  }
  return items;
}

/** uPlot wants one ascending list of x for all series: each has gaps where it says nothing. */
function drawing(curves, budget) {
  const sizes = curves.flatMap(({ fits, failed }) => [...fits.map(([size]) => size), ...failed]);
  const most = Math.max(...sizes, 2);
  const end = most * 1.06;
  const xs = [...new Set([0, ...sizes, end])].sort((a, b) => a - b);
  const at = new Map(xs.map((x, index) => [x, index]));
  const blank = () => xs.map(() => null);
  const data = [xs];
  const series = [{}];
  const spread = (points) => {
    const values = blank();
    for (const [x, y] of points) values[at.get(x)] = y;
    return values;
  };
  for (const [index, { line, fits, failed }] of curves.entries()) {
    const stroke = colour(`curve-${index % COLOURS}`);
    if (line !== null) {
      const y = (x) => Math.max(0, line.base + line.slope * x);
      data.push(
        spread([
          [0, y(0)],
          [end, y(end)],
        ]),
      );
      series.push({ stroke, width: 1.5, spanGaps: true, points: { show: false } });
    }
    data.push(spread(fits));
    series.push({
      stroke,
      paths: () => null,
      points: { show: true, size: 8, fill: stroke, stroke: colour('sheet'), width: 1.5 },
    });
    data.push(spread(failed.map((size) => [size, heightOfFailure(size, line, fits, budget)])));
    series.push({ stroke: colour('bad'), paths: () => null, points: { show: crosses } });
  }
  if (budget !== null) {
    data.push(
      spread([
        [0, budget],
        [end, budget],
      ]),
    );
    series.push({ stroke: colour('bad'), width: 1.5, dash: [6, 4], spanGaps: true, points: { show: false } });
  }
  const peaks = data
    .slice(1)
    .flat()
    .filter((y) => y !== null);
  const top = Math.max(...peaks.filter((y) => budget === null || y <= budget * 1.25), budget ?? 0) * 1.08;
  return {
    data,
    options: {
      series,
      axes: [{ ...axis(), space: 56, incrs: WHOLE, values: (_plot, splits) => splits.map(String) }, memoryAxis()],
      scales: { x: { time: false, range: [0, end] }, y: { range: [0, top || 1] } },
    },
  };
}

/** What it needed is not known; it is put where its line meets it, at least at the budget, so that it can be seen. */
function heightOfFailure(size, line, fits, budget) {
  const predicted = line === null ? (fits.at(-1)?.[1] ?? 0) : line.base + line.slope * size;
  if (budget === null) return predicted;
  return Math.min(Math.max(predicted, budget), budget * 1.2);
}

/** Draws a cross at each point. */
function crosses(plot, index) {
  const { ctx } = plot;
  const reach = 4 * devicePixelRatio;
  ctx.save();
  ctx.strokeStyle = colour('bad');
  ctx.lineWidth = 2 * devicePixelRatio;
  ctx.setLineDash([]);
  ctx.beginPath();
  for (const [at, y] of plot.data[index].entries()) {
    if (y === null || y === undefined) continue;
    const [px, py] = [plot.valToPos(plot.data[0][at], 'x', true), plot.valToPos(y, 'y', true)];
    ctx.moveTo(px - reach, py - reach);
    ctx.lineTo(px + reach, py + reach);
    ctx.moveTo(px + reach, py - reach);
    ctx.lineTo(px - reach, py + reach);
  }
  ctx.stroke();
  ctx.restore();
  return false;
}
