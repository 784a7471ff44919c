import { devicesPart } from './devices.js';
import { jobsPart } from './jobs.js';

/** Devices, and all jobs. */
export function overviewPage() {
  const devices = devicesPart();
  const jobs = jobsPart();
  return {
    elements: [devices.element, jobs.element],
    handlers: { machine: devices.update, jobs: jobs.update },
    close: jobs.close,
  };
}
