export { divisors } from './accumulation.js';
export { anatomyOf, PARTS } from './anatomy.js';
export { curvesOf } from './curve.js';
export { ladderFrom } from './ladder.js';
export { failsAlone } from './lone.js';
export { doubtOf, peakBytes } from './peaks.js';
export { largestDivisor, stepDown } from './step-down.js';
export { Tuner } from './tuner.js';
export type * from './types.js';
