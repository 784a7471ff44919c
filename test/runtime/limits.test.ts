import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { listGpus } from '../../src/devices/cuda/gpus.js';
import { firstPartyLimit, mpsEnvironment, mpsRuns, type Offers } from '../../src/devices/cuda/limits.js';
import { dmemRegions } from '../../src/devices/dmem.js';
import type { NativeGpu } from '../../src/devices/kind.js';
import { encodeSpec } from '../../src/runtime/spec.js';

const GiB = 1024 ** 3;
const root = mkdtempSync(join(tmpdir(), 'oomtune-limits-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));

function file(name: string, content = ''): string {
  const path = join(root, name);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, content);
  return path;
}

function gpu(more: Partial<NativeGpu> = {}): NativeGpu {
  return {
    index: 0,
    mig: -1,
    uuid: 'GPU-1',
    parent: '',
    bus: '0000:17:00.0',
    model: 'NVIDIA Test',
    fault: '',
    total_bytes: 24 * GiB,
    used_bytes: GiB,
    processes_told: true,
    processes: [],
    ...more,
  };
}

const nothing: Offers = { mps: false, regions: new Map() };

describe("the kernel's dmem controller", () => {
  const capacity = 'drm/0000:17:00.0/vram0 85899345920\ndrm/0000:18:00.0/vram 1024\ndrm/0000:17:00.0/stolen 5\n';
  // The files of cgroup v2, as Linux 6.14 and newer lay them out.
  file('group/dmem.capacity', capacity);
  file('group/user/cgroup.subtree_control', 'cpu memory dmem\n');
  file('group/plain/cgroup.subtree_control', 'cpu memory\n');
  const groups = join(root, 'group');

  test('offers a region for each device whose memory it can limit', () => {
    expect([...dmemRegions(groups, '0::/user\n')]).toEqual([
      ['0000:17:00.0', 'drm/0000:17:00.0/vram0'],
      ['0000:18:00.0', 'drm/0000:18:00.0/vram'],
    ]);
  });

  test('offers nothing to a group that it is not handed on to, to v1, or to an older kernel', () => {
    expect(dmemRegions(groups, '0::/plain\n').size).toBe(0);
    expect(dmemRegions(groups, '5:memory:/user\n').size).toBe(0);
    file('old/user/cgroup.subtree_control', 'dmem\n');
    expect(dmemRegions(join(root, 'old'), '0::/user\n').size).toBe(0);
  });

  test("is told of a launch's budget by the supervisor, and of nothing without one", () => {
    const spec = { jobId: 'j', launch: 1, argv: ['true'], cwd: '/', env: {}, dir: '/x', devices: ['cuda:0'] };
    const rest = { timeoutSeconds: null, graceSeconds: 1, output: 'log' as const };
    const encoded = (budgetBytes: number | null) =>
      encodeSpec({ ...spec, ...rest, budgetBytes }, {}, [], null, ['drm/0000:17:00.0/vram0']).split('\0');
    expect(encoded(8 * GiB)).toContain(`dmem=${8 * GiB},drm/0000:17:00.0/vram0`);
    expect(encoded(null).filter((record) => record.startsWith('dmem'))).toEqual([]);
  });
});

describe('MPS', () => {
  const env = { CUDA_MPS_PIPE_DIRECTORY: join(root, 'mps') };

  test('runs where its control daemon does, and not where only its files are left', () => {
    file('proc/77/comm', 'nvidia-cuda-mps\n');
    file('proc/78/comm', 'bash\n');
    const proc = join(root, 'proc');
    expect(mpsRuns(env, proc)).toBe(false);
    file('mps/control');
    expect(mpsRuns(env, proc)).toBe(false);
    file('mps/nvidia-cuda-mps-control.pid', '77');
    expect(mpsRuns(env, proc)).toBe(true);
    file('mps/nvidia-cuda-mps-control.pid', '78');
    expect(mpsRuns(env, proc)).toBe(false);
    file('mps/nvidia-cuda-mps-control.pid', 'x');
    expect(mpsRuns(env, proc)).toBe(false);
  });

  test('is told a budget for each device of the job, in whole MiB, none smaller than the budget', () => {
    const two = [gpu(), gpu({ index: 1 })];
    const listed = (mps: boolean) =>
      listGpus({ found: true, driver: '', error: '', gpus: two }, undefined, { ...nothing, mps });
    const told = (mps: boolean, env = {}) => mpsEnvironment(listed(mps), { budgetBytes: 8 * GiB + 1, env });
    expect(told(true)).toEqual({ CUDA_MPS_PINNED_DEVICE_MEM_LIMIT: '0=8193M,1=8193M' });
    expect(told(false)).toEqual({});
    expect(told(true, { CUDA_MPS_PINNED_DEVICE_MEM_LIMIT: '0=1G' })).toEqual({});
    expect(mpsEnvironment(listed(true), { budgetBytes: null, env: {} })).toEqual({});
  });
});

describe('the limit that a device is listed with', () => {
  const regions = new Map([['0000:17:00.0', 'drm/0000:17:00.0/vram0']]);

  test('is the strictest that there is', () => {
    expect(firstPartyLimit(gpu(), nothing)).toBe('none');
    expect(firstPartyLimit(gpu({ mig: 1 }), nothing)).toBe('mig');
    expect(firstPartyLimit(gpu({ mig: 1 }), { mps: true, regions })).toBe('mps');
    expect(firstPartyLimit(gpu(), { mps: true, regions })).toBe('dmem');
    expect(firstPartyLimit(gpu({ bus: '0000:99:00.0' }), { mps: false, regions })).toBe('none');
  });

  test('stands in the inventory', () => {
    const [device] = listGpus({ found: true, driver: '580.1', error: '', gpus: [gpu()] }, undefined, {
      mps: false,
      regions,
    });
    expect(device).toMatchObject({ first_party_limit: 'dmem', bus: '0000:17:00.0', figures: 'process' });
  });
});

describe('pids of another namespace', () => {
  const processes = [{ pid: 4_100_100, name: 'python', used_bytes: GiB }];
  const listed = (proc: string) =>
    listGpus({ found: true, driver: '580.1', error: '', gpus: [gpu({ processes })] }, undefined, nothing, proc)[0];

  test('are no list of processes, and the device says so', () => {
    mkdirSync(join(root, 'container'), { recursive: true });
    expect(listed(join(root, 'container'))).toMatchObject({
      figures: 'device',
      processes: [],
      note: expect.stringContaining('pids that mean nothing here'),
    });
  });

  test('are not suspected where the process is there', () => {
    file('same/4100100/comm', 'python\n');
    expect(listed(join(root, 'same'))).toMatchObject({
      figures: 'process',
      note: null,
      processes: [{ pid: 4_100_100 }],
    });
  });
});
