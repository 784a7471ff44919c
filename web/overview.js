import { devicesPart } from './devices.js';
import { h } from './dom.js';
import { jobsPart } from './jobs.js';

/** Devices, and all jobs. */
export function overviewPage() {
  const devices = devicesPart();
  const jobs = jobsPart();
  return {
    elements: [h('h1', { class: 'unseen' }, 'oomtune'), devices.element, jobs.element],
    handlers: { machine: devices.update, jobs: jobs.update },
    close: jobs.close,
  };
}
