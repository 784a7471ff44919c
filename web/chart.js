import uPlot from '/uplot.js';
import { h } from './dom.js';
import { bytesIn, unitFor } from './format.js';

/** The page's own colours, read anew for each drawing: they follow light and dark. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

const GIB = 1024 ** 3;
const HEIGHT = 216;

/** Steps that read well in binary units. */
const SIZES = Array.from({ length: 44 }, (_, power) => [1, 2, 5].map((n) => n * 2 ** power))
  .flat()
  .concat([10, 20, 50, 100, 200, 500].flatMap((n) => [n * 2 ** 10, n * 2 ** 20, n * GIB]))
  .sort((a, b) => a - b);

export const memoryAxis = () => ({
  ...axis(),
  size: 66,
  space: 38,
  incrs: SIZES,
  values: (_plot, splits) => {
    const unit = unitFor(Math.max(...splits)); // one for all, or the eye has to convert
    return splits.map((size) => bytesIn(size, unit));
  },
});

export const axis = () => ({
  size: 30,
  stroke: colour('ink-2'),
  font: '11.5px system-ui, sans-serif',
  grid: { stroke: colour('line'), width: 1 },
  ticks: { show: false },
});

const CLOCK = { hour: '2-digit', minute: '2-digit', hour12: false };
const SECONDS = new Intl.DateTimeFormat(undefined, { ...CLOCK, second: '2-digit' });
const MINUTES = new Intl.DateTimeFormat(undefined, CLOCK);
const DAYS = new Intl.DateTimeFormat(undefined, { weekday: 'short', ...CLOCK });

/** Times of the day, as long as they fit. */
export const timeAxis = () => ({
  ...axis(),
  space: 84,
  values: (_plot, splits, _axis, _space, step) => {
    const form = step < 60 ? SECONDS : splits.at(-1) - splits[0] > 86_400 ? DAYS : MINUTES;
    return splits.map((s) => form.format(s * 1000));
  },
});

/** The frame of a chart: it draws when there is something to draw, as wide as there is room, again when colours change. */
export function chartFrame(id, title, emptyText) {
  const plotBox = h('div', {});
  const empty = h('p', { class: 'void' }, emptyText);
  const caption = h('figcaption', { class: 'legend' });
  const figure = h('figure', { class: 'chart', role: 'figure', 'aria-labelledby': id }, plotBox, empty, caption);
  const picture = h('div', { class: 'unseen' });
  figure.append(picture);
  const element = h(
    'section',
    { class: 'sheet', 'aria-labelledby': id },
    h('header', {}, h('h2', { id }, title)),
    figure,
  );
  let plot = null;
  let make = null;
  const width = () => Math.max(240, figure.clientWidth - 24);

  function draw() {
    plot?.destroy();
    plot = null;
    empty.hidden = make !== null;
    caption.hidden = make === null;
    if (make === null || figure.clientWidth === 0) return;
    const { options, data } = make();
    plot = new uPlot(
      { width: width(), height: HEIGHT, cursor: { y: false }, legend: { show: false }, ...options },
      data,
      plotBox,
    );
  }

  const sizes = new ResizeObserver(() => (plot === null ? draw() : plot.setSize({ width: width(), height: HEIGHT })));
  sizes.observe(figure);
  const scheme = matchMedia('(prefers-color-scheme: dark)');
  scheme.addEventListener('change', draw);

  return {
    element,
    figure,
    caption,
    /** What a screen reader is told instead of the picture. */
    describe(text) {
      if (picture.textContent !== text) picture.textContent = text;
    },
    /** `maker` gives uPlot's options and data; null: there is nothing to show. */
    set(maker) {
      make = maker;
      draw();
    },
    /** New data for the same picture. */
    setData(data) {
      if (plot === null) draw();
      else plot.setData(data);
    },
    close() {
      sizes.disconnect();
      scheme.removeEventListener('change', draw);
      plot?.destroy();
    },
  };
}
