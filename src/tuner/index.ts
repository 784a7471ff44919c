export { divisors, type EffectivePlan, planEffective } from './accumulation.js';
export { type Anatomy, anatomyOf, PARTS } from './anatomy.js';
export { type Curve, curvesOf } from './curve.js';
export { type LadderOptions, ladderFrom, sameRung } from './ladder.js';
export { failsAlone } from './lone.js';
export { doubtOf, peakBytes } from './peaks.js';
export { rungName } from './rung-name.js';
export { Tuner } from './tuner.js';
export type * from './types.js';
