import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { hostDevice, memoryGroup } from '../../src/devices/cpu/index.js';
import { listGpus, visibleGpus } from '../../src/devices/cuda/gpus.js';
import { findDriver } from '../../src/devices/cuda/index.js';
import type { NativeGpu } from '../../src/devices/kind.js';
import { Devices } from '../../src/runtime/devices.js';
import { preloadable, preloadEnvironment } from '../../src/runtime/environment.js';
import { createRuntime } from '../../src/runtime/index.js';
import { loadNative } from '../../src/runtime/native.js';

const GiB = 1024 ** 3;
const root = mkdtempSync(join(tmpdir(), 'oomtune-devices-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));

function file(name: string, content = ''): string {
  const path = join(root, name);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, content);
  return path;
}

function gpu(index: number, more: Partial<NativeGpu> = {}): NativeGpu {
  return {
    index,
    mig: -1,
    uuid: `GPU-${index}1111111-0000-0000-0000-000000000000`,
    parent: '',
    model: 'NVIDIA Test',
    fault: '',
    total_bytes: 24 * GiB,
    used_bytes: 0,
    processes_told: true,
    processes: [],
    ...more,
  };
}

const inventory = (gpus: NativeGpu[], error = '') => ({ found: gpus.length > 0, driver: '580.1', error, gpus });

describe('the host as a device', () => {
  test('is there without a GPU', async () => {
    const devices = await createRuntime().devices();
    const host = devices.at(-1);
    expect(host).toMatchObject({ id: 'cpu', fault: null, processes: [] });
    expect(host?.uuid).toMatch(/^cpu:./);
    expect(host?.model).not.toBe('');
    expect(host?.total_bytes).toBeGreaterThan(host?.used_bytes as number);
    expect(hostDevice().used_bytes).toBeGreaterThan(0);
  });

  test('is as large as the tightest cgroup lets it be, of either version', () => {
    file('v2/a/memory.max', '2147483648\n');
    file('v2/a/memory.current', '100\n');
    file('v2/a/b/memory.max', 'max\n');
    file('v2/a/b/memory.current', '50\n');
    expect(memoryGroup(join(root, 'v2'), '0::/a/b\n')).toEqual({ limit: 2147483648, used: 100 });
    expect(memoryGroup(join(root, 'v2'), '0::/elsewhere\n')).toBeNull();
    file('v1/memory/job/memory.limit_in_bytes', '1048576\n');
    file('v1/memory/job/memory.usage_in_bytes', '7\n');
    file('v1/memory/memory.limit_in_bytes', '9223372036854771712\n');
    file('v1/memory/memory.usage_in_bytes', '9\n');
    expect(memoryGroup(join(root, 'v1'), '5:cpu,memory:/job\n0::/\n')).toEqual({ limit: 1048576, used: 7 });
    expect(memoryGroup(join(root, 'v1'), '5:memory:/\n')).toBeNull();
  });
});

describe('GPUs', () => {
  const four = [0, 1, 2, 3].map((index) => gpu(index));
  const indexes = (visible: string | undefined) => visibleGpus(four, visible).map(({ index }) => index);

  test('are those that CUDA_VISIBLE_DEVICES leaves, in its order', () => {
    expect(indexes(undefined)).toEqual([0, 1, 2, 3]);
    expect(indexes('')).toEqual([]);
    expect(indexes('2,0')).toEqual([2, 0]);
    expect(indexes('1,9,2')).toEqual([1]);
    expect(indexes('-1')).toEqual([]);
    expect(indexes('GPU-3111, 0')).toEqual([3, 0]);
    expect(indexes('1,1')).toEqual([1]);
    expect(listGpus(inventory(four), '2,0').map(({ id, uuid }) => `${id} ${uuid.slice(0, 5)}`)).toEqual([
      'cuda:0 GPU-2',
      'cuda:1 GPU-0',
    ]);
  });

  test('say what is missing in a container, and what is broken', () => {
    const told = { pid: process.pid, name: '', used_bytes: 4 * GiB };
    const [whole, hidden, untold, unknown, lost] = listGpus(
      inventory([
        gpu(0, { used_bytes: 4.2 * GiB, processes: [told] }),
        gpu(1, { used_bytes: 30 * GiB }),
        gpu(2, { processes_told: false }),
        gpu(3, { used_bytes: GiB, processes: [{ pid: 9, name: 'x', used_bytes: null }] }),
        gpu(4, { fault: 'the GPU has fallen off the bus' }),
      ]),
      undefined,
    );
    expect(whole).toMatchObject({ note: null, fault: null, driver: '580.1' });
    expect(whole?.processes).toMatchObject([{ pid: process.pid, used_bytes: 4 * GiB, ours: false }]);
    expect(whole?.processes[0]?.name).not.toBe('');
    for (const device of [hidden, untold, unknown]) expect(device?.note).toContain('only the whole device is known');
    expect(lost?.fault).toBe('the GPU has fallen off the bus');
  });

  test('come before the host, which says that they do not answer', async () => {
    const ids = async (gpus: NativeGpu[]) =>
      (await new Devices({ inventory: async () => inventory(gpus) }).list()).map(({ id }) => id);
    expect(await ids(four.slice(2))).toEqual(['cuda:0', 'cuda:1', 'cpu']);
    const silent = new Devices({ inventory: async () => inventory([], 'Driver/library version mismatch') });
    expect((await silent.list())[0]?.note).toContain('mismatch');
  });

  test('are asked for each time, but where there is no driver only now and then', async () => {
    const asked = async (error: string): Promise<number> => {
      let times = 0;
      const count = async () => {
        times += 1;
        return inventory([], error);
      };
      const devices = new Devices({ inventory: count });
      await devices.list();
      await devices.list();
      return times;
    };
    expect([await asked(''), await asked('no answer')]).toEqual([1, 2]);
  });

  test('are needed by who asks for them', async () => {
    const spec = { jobId: 'j', launch: 1, argv: ['true'], cwd: '/', env: {}, dir: join(root, 'none') };
    const rest = { budgetBytes: null, timeoutSeconds: null, graceSeconds: 1, output: 'log' as const };
    await expect(createRuntime().launch({ ...spec, ...rest, devices: ['cuda:99'] })).rejects.toMatchObject({
      code: 'OOMTUNE_DEVICE_MISSING',
    });
  });
});

describe('the environment of a job', () => {
  test("keeps the user's own preloads, behind ours, and repeats nothing", () => {
    const native = join(root, 'native');
    const host = file('native/liboomtune_host.so');
    const once = preloadEnvironment(['cpu'], { LD_PRELOAD: '/a.so /b.so' }, native).env;
    expect(once).toEqual({ LD_PRELOAD: `${host}:/a.so:/b.so`, MKL_DISABLE_FAST_MM: '1' });
    expect(preloadEnvironment(['cpu'], { ...once }, native).env).toEqual(once);
    expect(preloadEnvironment(['cpu'], { MKL_DISABLE_FAST_MM: '0' }, native).env.MKL_DISABLE_FAST_MM).toBe('0');
    expect(preloadEnvironment(['cpu'], {}, join(root, 'empty')).env).toEqual({});
  });

  test('leads CUDA through the stand-in to the real driver', () => {
    const native = join(root, 'native');
    const standIn = file('native/cuda/libcuda.so.1');
    const driver = file('driver/libcuda.so.580');
    symlinkSync(driver, join(root, 'driver', 'libcuda.so.1'));
    const user = { LD_LIBRARY_PATH: `${join(root, 'driver')}:/x y`, LD_PRELOAD: '/interposer.so' };
    const { env, standIn: told } = preloadEnvironment(['cuda:0'], user, native);
    expect(env).toEqual({
      LD_PRELOAD: `/interposer.so:${standIn}`,
      LD_LIBRARY_PATH: `${join(native, 'cuda')}:${join(root, 'driver')}:/x y`,
      OOMTUNE_CUDA_DRIVER: driver,
    });
    expect(told).toBe(standIn);
    expect(findDriver(env, join(native, 'cuda'))).toBe(driver);
  });

  test('reaches a package that stands in a folder with blanks', () => {
    const folder = join(root, 'my projects');
    file('my projects/liboomtune_host.so', 'x');
    const link = preloadable(folder);
    expect(link).not.toMatch(/\s/);
    expect(execFileSync('cat', [join(link, 'liboomtune_host.so')], { encoding: 'utf8' })).toBe('x');
    expect(preloadable(folder)).toBe(link);
    rmSync(link);
  });
});

describe('the native parts', () => {
  test('when they cannot be loaded, say where they were looked for and what to do', () => {
    const folders = [join(root, 'empty'), '/no/such/folder'];
    expect(() => loadNative(folders)).toThrow(
      expect.objectContaining({
        code: 'OOMTUNE_NATIVE_MISSING',
        message: expect.stringMatching(/empty.*\/no\/such\/folder/s),
        remedy: expect.stringContaining('npm run build:native'),
      }),
    );
  });

  test('are of one version', () => {
    const { addon, supervisor } = createRuntime().versions();
    expect(addon).toMatch(/^\d+\.\d+\.\d+/);
    expect(supervisor).toBe(addon);
  });
});
