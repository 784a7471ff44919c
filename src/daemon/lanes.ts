import PQueue from 'p-queue';
import { HOST } from '../contract/device-id.js';
import type { DaemonSettings } from './settings.js';

/** How many jobs this host begins at a time, on host memory and on GPUs. Leases, not lanes, decide who may use a device. */
export class Lanes {
  readonly #cpu: PQueue;
  readonly #gpu = new PQueue({ concurrency: 1 });
  readonly #sizes: { cpu: number; gpu: number };
  readonly #each: number;
  #gpus = 0;

  constructor({ cpuLanes, gpuLanes }: Pick<DaemonSettings, 'cpuLanes' | 'gpuLanes'>) {
    this.#cpu = new PQueue({ concurrency: cpuLanes });
    this.#sizes = { cpu: cpuLanes, gpu: 1 };
    this.#each = gpuLanes;
  }

  set gpus(count: number) {
    this.#gpus = count;
    this.#sizes.gpu = Math.max(1, count * this.#each);
    this.#gpu.concurrency = Math.max(this.#sizes.gpu, this.#gpu.pending);
  }

  get sizes(): { cpu: number; gpu: number } {
    return { ...this.#sizes };
  }

  /** `waits`: labels of jobs that wait for a GPU. They take no lane, as others may need less or start elsewhere. */
  hasRoom(label: string, waits: string[] = []): boolean {
    const name = this.#nameOf(label);
    const lane = name === 'host' ? this.#cpu : this.#gpu;
    const idle = name === 'host' ? 0 : waits.filter((one) => this.#nameOf(one) === 'gpu').length;
    return lane.pending + lane.size - idle < this.#sizeOf(name);
  }

  /** `atOnce`: it runs already and waits for no lane. */
  add<T>(label: string, atOnce: boolean, task: () => Promise<T>): Promise<T> {
    const name = this.#nameOf(label);
    const lane = name === 'host' ? this.#cpu : this.#gpu;
    // A GPU lane was checked for room before
    const begins = atOnce || name === 'gpu';
    lane.concurrency = Math.max(this.#sizeOf(name), begins ? lane.pending + lane.size + 1 : 1);
    return lane.add(task);
  }

  #sizeOf(name: 'host' | 'gpu'): number {
    return name === 'host' ? this.#sizes.cpu : this.#sizes.gpu;
  }

  #nameOf(label: string): 'host' | 'gpu' {
    if (label.startsWith('any')) return this.#gpus > 0 ? 'gpu' : 'host';
    return label.startsWith(HOST) ? 'host' : 'gpu';
  }
}
