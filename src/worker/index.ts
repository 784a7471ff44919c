export { firstWithTorch } from './command/torch.js';
export { budgetLabel, configKey, deviceSlug } from './key.js';
export { Detached, letsGo } from './launch/detached.js';
export { resolveBudget, suitableDevices } from './memory/device.js';
export { jobBudget, jobMemory, partsOf } from './memory/memory-report.js';
export { runJob } from './run/run-job.js';
export { findBatch } from './search/find-batch.js';
export * from './types.js';
