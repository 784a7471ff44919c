export { Detached, letsGo } from './detached.js';
export { resolveBudget, suitableDevices } from './device.js';
export { ENVIRONMENT_ALLOWED, jobEnvironment } from './environment.js';
export { findBatch } from './find-batch.js';
export { firstWithTorch } from './interpreter.js';
export { budgetLabel, configKey, deviceSlug } from './key.js';
export { samplesPerSecond } from './observe.js';
export { runJob } from './run-job.js';
export * from './types.js';
