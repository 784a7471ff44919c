import { chartFrame, colour, memoryAxis, timeAxis } from './chart.js';
import { h, oncePerFrame } from './dom.js';
import { bytes } from './format.js';

/** So many times the usual distance, and so many ms, without a sample: nobody looked then. */
const LONG = 8;
const LONG_MS = 5000;
/** Beyond this the oldest of what came since the page was opened goes: the daemon thins out what it keeps. */
const MOST = 4000;

/** What the job holds, from its first launch on, with a mark where each launch begins. */
export function memoryChart() {
  const frame = chartFrame(
    'memory-title',
    'Memory over time',
    'Nothing was seen of it. This is drawn while a job runs, and kept for a week.',
  );
  let samples = [];
  let budget = null;
  let purposes = new Map();
  let drawn = false;
  const later = oncePerFrame(draw);

  function draw() {
    frame.figure.dataset.samples = samples.length;
    frame.figure.dataset.launches = launches(samples).length;
    const unseen = gaps(samples);
    frame.figure.dataset.gaps = unseen.size;
    if (samples.length < 2) {
      if (drawn) frame.set(null);
      drawn = false;
      return;
    }
    const peak = Math.max(...samples.map(({ bytes: size }) => size));
    frame.describe(
      `${launches(samples).length} launches; the highest memory seen is ${bytes(peak)}${budget === null ? '' : `, the budget ${bytes(budget)}`}.${unseen.size === 0 ? '' : ' No daemon looked for some of the time.'}`,
    );
    if (drawn) {
      frame.setData(columns(samples, budget));
      return;
    }
    drawn = true;
    frame.caption.replaceChildren(...legend(budget));
    frame.set(() => ({ data: columns(samples, budget), options: options(() => ({ samples, budget, purposes })) }));
  }

  return {
    element: frame.element,
    close: frame.close,
    setJob(job) {
      purposes = new Map(job.launches.map(({ launch, purpose }) => [launch, purpose]));
      if (job.launches.length === 0 && samples.length > 0) {
        samples = []; // queued again: it begins anew
        later();
      }
      if (job.budget_bytes === budget) return;
      budget = job.budget_bytes;
      drawn = false;
      later();
    },
    update({ full, samples: more }) {
      samples = full ? more : [...samples, ...more].slice(-MOST);
      later();
    },
  };
}

const launches = (samples) => samples.filter(({ launch }, at) => launch !== samples[at - 1]?.launch);

/** Where, within a launch, the time before a sample was not looked at: the daemon was down. */
function gaps(samples) {
  const passed = samples.map(({ at, launch }, n) => (launch === samples[n - 1]?.launch ? at - samples[n - 1].at : 0));
  const usual = passed.filter((ms) => ms > 0).sort((a, b) => a - b);
  const long = Math.max(LONG_MS, LONG * (usual[usual.length >> 1] ?? 0));
  return new Set(passed.flatMap((ms, n) => (ms > long ? [n] : [])));
}

/** A break between launches, and where nobody looked: nothing is known of the job then. */
function columns(samples, budget) {
  const [xs, ys] = [[], []];
  const unseen = gaps(samples);
  for (const [at, { launch, at: time, bytes: size }] of samples.entries()) {
    if (at > 0 && (samples[at - 1].launch !== launch || unseen.has(at))) {
      xs.push((time - 1) / 1000);
      ys.push(null);
    }
    xs.push(time / 1000);
    ys.push(size);
  }
  return [xs, ys, xs.map(() => budget)];
}

function legend(budget) {
  const items = [
    h('span', { class: 'c0' }, h('span', { class: 'swatch' }), 'held by the job'),
    h('span', {}, '▏launch begins'),
  ];
  if (budget !== null)
    items.push(h('span', { class: 'cbad' }, h('span', { class: 'swatch dash' }), `budget ${bytes(budget)}`));
  return items;
}

function options(now) {
  const top = () => {
    const { samples, budget } = now();
    return (Math.max(...samples.map(({ bytes: size }) => size), budget ?? 0) || 1) * 1.12;
  };
  const soft = colour('curve-0');
  return {
    series: [
      {},
      {
        stroke: soft,
        width: 1.5,
        fill: `color-mix(in srgb, ${soft} 14%, transparent)`,
        points: { show: lonely, size: 4 },
      },
      { stroke: colour('bad'), width: 1.5, dash: [6, 4], points: { show: false } },
    ],
    axes: [timeAxis(), memoryAxis()],
    scales: { x: { time: true }, y: { range: () => [0, top()] } },
    hooks: { draw: [(plot) => marks(plot, now())] },
  };
}

/** A launch that was seen once only has no line: it gets a point. */
const lonely = (plot, series) => {
  const ys = plot.data[series];
  return ys.some((y, at) => y !== null && (ys[at - 1] ?? null) === null && (ys[at + 1] ?? null) === null);
};

/** A line and a number where each launch begins; numbers that would stand on each other are left out. */
function marks(plot, { samples, purposes }) {
  const { ctx, bbox } = plot;
  const ratio = devicePixelRatio;
  ctx.save();
  ctx.strokeStyle = colour('ink-2');
  ctx.fillStyle = colour('ink-2');
  ctx.lineWidth = ratio;
  ctx.setLineDash([]);
  ctx.textAlign = 'left';
  ctx.textBaseline = 'alphabetic';
  ctx.font = `${11 * ratio}px system-ui, sans-serif`;
  let free = Number.NEGATIVE_INFINITY;
  for (const { launch, at } of launches(samples)) {
    const x = Math.round(plot.valToPos(at / 1000, 'x', true)) + 0.5;
    if (x < bbox.left - 1 || x > bbox.left + bbox.width + 1) continue;
    ctx.globalAlpha = 0.55;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.globalAlpha = 1;
    const text = purposes.get(launch) === 'run' ? `${launch} run` : String(launch);
    if (x < free) continue;
    ctx.fillText(text, x + 3 * ratio, bbox.top + 10 * ratio);
    free = x + ctx.measureText(text).width + 8 * ratio;
  }
  ctx.restore();
}
