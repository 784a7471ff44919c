/**
 * A trace of jobs that want one GPU: when each arrives, how long it trains, what it is. Drawn from figures of published
 * traces (README.md); the same seed gives the same trace.
 */

/** Seconds that pods with one GPU ran, by quantile: Alibaba PAI 2023, the 6129 of them that were started. Cut at 95 %. */
const DURATIONS = [
  [0, 4],
  [0.01, 20],
  [0.05, 48],
  [0.1, 67],
  [0.2, 144],
  [0.3, 218],
  [0.4, 367],
  [0.5, 655],
  [0.6, 1037],
  [0.7, 1687],
  [0.8, 3261],
  [0.9, 7240],
  [0.95, 16080],
];
/** Standard deviation of the seconds between two arrivals, by their mean, in the same trace. */
const BURSTS = 1.76;
/** What part of a GPU such a pod asked for, with the part of the pods that asked for no more; 58 % asked for all of one. */
const SHARES = [
  [0.1, 'small'],
  [0.25, 'medium'],
  [0.42, 'large'],
];
const KINDS = {
  small: ['recurrent', 'mlp', 'graph'],
  medium: ['recommender', 'resnet', 'bert'],
  large: ['unet', 'vit'],
  /** Who asks for all of it says nothing of what he needs. */
  any: ['mlp', 'recurrent', 'graph', 'recommender', 'resnet', 'bert', 'unet', 'vit', 'gpt', 'denoiser'],
};
export const ALL_KINDS = KINDS.any;

/**
 * `arrives` and `trains` in seconds; their scale is the caller's: all arrive within `arriveSeconds`, and train for `trainSeconds`
 * in sum. `known`: kinds that there may be.
 */
export function trace({ jobs, trainSeconds, arriveSeconds, seed = 1 }, known = ALL_KINDS) {
  const draw = generator(seed);
  // One of each equal part of the distribution, so that the sum does not hang on a single draw of its tail
  const durations = shuffled(
    Array.from({ length: jobs }, (_, at) => quantile(DURATIONS, (0.95 * (at + 0.5)) / jobs)),
    draw,
  );
  const parts = shuffled(
    Array.from({ length: jobs }, (_, at) => (at + 0.5) / jobs),
    draw,
  );
  const gaps = Array.from({ length: jobs }, () => hyperexponential(BURSTS, draw));
  const scale = { train: trainSeconds / sum(durations), arrive: arriveSeconds / sum(gaps.slice(1)) };
  const counts = {};
  let now = 0;
  return durations.map((seconds, at) => {
    if (at > 0) now += gaps[at] * scale.arrive;
    const size = SHARES.find(([part]) => parts[at] <= part)?.[1] ?? 'any';
    counts[size] = (counts[size] ?? -1) + 1;
    const suiting = KINDS[size].filter((kind) => known.includes(kind));
    const kinds = suiting.length > 0 ? suiting : known;
    const kind = kinds[counts[size] % kinds.length];
    return { at, kind, arrives: now, trains: seconds * scale.train };
  });
}

/** Between two known quantiles the logarithm is a line. */
function quantile(known, part) {
  const next = Math.max(
    1,
    known.findIndex(([p]) => p >= part),
  );
  const [[p0, v0], [p1, v1]] = [known[next - 1], known[next]];
  return Math.exp(Math.log(v0) + (Math.log(v1 / v0) * (part - p0)) / (p1 - p0));
}

/** A draw of mean 1 whose standard deviation is `deviation` (above 1): of two exponentials, with balanced means. */
function hyperexponential(deviation, draw) {
  const square = deviation ** 2;
  const part = (1 + Math.sqrt((square - 1) / (square + 1))) / 2;
  const rate = draw() < part ? 2 * part : 2 * (1 - part);
  return -Math.log(1 - draw()) / rate;
}

const sum = (values) => values.reduce((total, value) => total + value, 0);

function shuffled(values, draw) {
  for (let at = values.length - 1; at > 0; at -= 1) {
    const other = Math.floor(draw() * (at + 1));
    [values[at], values[other]] = [values[other], values[at]];
  }
  return values;
}

/** mulberry32 */
function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
