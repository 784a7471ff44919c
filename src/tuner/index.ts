export { divisors } from './accumulation.js';
export { curvesOf } from './curve.js';
export { ladderFrom } from './ladder.js';
export { breakdownOf, PARTS } from './memory-breakdown.js';
export { doubtOf, peakBytes } from './peaks.js';
export { failsAlone } from './single-sample.js';
export { largestDivisor, stepDown } from './step-down.js';
export { Tuner } from './tuner.js';
export type * from './types.js';
