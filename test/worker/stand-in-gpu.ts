import type { Device } from '../../src/contract/launch.js';
import type { Runtime } from '../../src/runtime/types.js';
import type { workbench } from './harness.js';

const GIB = 1024 ** 3;

/** A GPU that is not here: devices() names one, and what would run on it runs on the host. All else is the real runtime. */
export function withGpu(bench: ReturnType<typeof workbench>, now: () => Partial<Device> = () => ({})): void {
  const real = bench.deps.runtime;
  const gpu: Device = {
    id: 'cuda:0',
    uuid: 'GPU-none',
    model: 'Stand-in',
    total_bytes: 80 * GIB,
    used_bytes: 0,
    processes: [],
    note: null,
    fault: null,
    driver: null,
    bus: null,
    figures: 'process',
    first_party_limit: 'none',
  };
  bench.deps.runtime = new Proxy(real, {
    get(target, name: keyof Runtime) {
      if (name === 'devices') return async () => [{ ...gpu, ...now() }];
      if (name === 'launch') {
        return (spec: Parameters<Runtime['launch']>[0]) =>
          target.launch({ ...spec, devices: ['cpu'], budgetBytes: null });
      }
      const value = target[name];
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}
