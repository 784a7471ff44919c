import { describe, expect, it } from 'vitest';
import type { HookException } from '../../src/contract/hook.js';
import type { LedgerReading } from '../../src/contract/launch.js';
import { type DiagnoseInput, diagnose } from '../../src/worker/diagnosis/index.js';

const CPU_OOM =
  "RuntimeError: [enforce fail at alloc_cpu.cpp:83] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 268435456 bytes. Error code 12 (Cannot allocate memory)";
const OOM =
  'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.69 GiB of which 1.20 GiB is free.';

function judge(log: string, more: Partial<DiagnoseInput>) {
  return diagnose({ log: [Buffer.from(log)], ...more });
}

function traceback(exception: string, frame = 'File "train.py", line 3, in <module>'): string {
  return `Traceback (most recent call last):\n  ${frame}\n    step()\n${exception}\n`;
}

function refused(device: string): LedgerReading {
  return {
    devices: [{ device, live_bytes: 900, peak_bytes: 950, overhead_bytes: 10, budget_bytes: 1000 }],
    refused: 1,
    refusals: [
      {
        pid: 7,
        api: 'cuMemAlloc_v2',
        size_bytes: 200,
        live_bytes: 900,
        budget_bytes: 1000,
        by: 'budget',
        device,
        at: '2026-01-01T00:00:00Z',
      },
    ],
    blind: false,
  };
}

describe('a refused allocation', () => {
  it('that the budget refused is no neighbour’s, however much others hold of the device', async () => {
    const neighbours = [{ pid: 1234, name: 'python other.py', used_bytes: 100 * 1024 ** 3, ours: false, job: null }];
    const log = traceback('RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB');
    const bytes = { size_bytes: 2 * 1024 ** 3, live_bytes: 23 * 1024 ** 3, budget_bytes: 24 * 1024 ** 3 };
    const seen = refused('cuda:0');
    const ledger = { ...seen, refusals: seen.refusals.map((one) => ({ ...one, ...bytes })) };
    expect(await judge(log, { exitCode: 1, neighbours, ledger })).toMatchObject({ reason: 'batch', cure: 'smaller' });
    // torch lists them in its message, too.
    const listed = traceback(
      'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 1.00 GiB is free. Process 1190 has 23.81 GiB memory in use. Including non-PyTorch memory, this process has 23.00 GiB memory in use. Of the allocated memory 22.30 GiB is allocated by PyTorch, and 8.70 MiB is reserved by PyTorch but unallocated.',
    );
    const told = await judge(listed, { exitCode: 1, neighbours, ledger });
    expect(told).toMatchObject({ reason: 'batch', cure: 'smaller', memory: { others_bytes: 0, neighbours: [] } });
    const byDriver = { ...ledger, refusals: ledger.refusals.map((one) => ({ ...one, by: 'driver' as const })) };
    expect(await judge(log, { exitCode: 1, neighbours, ledger: byDriver })).toMatchObject({ reason: 'neighbour' });
  });

  it('is no failure where the job ended well', async () => {
    const d = await judge('done\n', { exitCode: 0, ledger: refused('cuda:0') });
    expect(d.class).toBe('ok');
  });

  it('just before a failure without a word is out of memory, though not for certain', async () => {
    const d = await judge('step 1 loss 2\n', { exitCode: 1, ledger: refused('cuda:0') });
    expect([d.class, d.certain]).toEqual(['device_oom', false]);
    expect(d.memory).toMatchObject({ total_bytes: 1000, asked_bytes: 200 });
  });

  it('is the reason of a crash that follows: libraries write to what they did not get', async () => {
    const crash = { exitCode: null, signal: 'SIGSEGV' };
    expect(await judge('', { ...crash, device: 'cpu' })).toMatchObject({ class: 'user_error', certain: true });
    const there = await judge('', { ...crash, device: 'cpu', ledger: refused('cpu') });
    expect(there).toMatchObject({ class: 'device_oom', certain: true });
    expect(there.cause).toContain('SIGSEGV');
    const gpu = await judge('', { ...crash, device: 'cuda', ledger: refused('cuda:0') });
    expect(gpu).toMatchObject({ class: 'device_oom', ambiguous: true });
  });

  it('settles it also where the process then crashed', async () => {
    const log = 'misc dxg: dxgk: dxgkio_make_resident: Ioctl failed: -12\n';
    const crash = { device: 'cuda', ledger: refused('cuda:0') } as const;
    expect(await judge(log, { ...crash, signal: 'SIGSEGV' })).toMatchObject({ class: 'device_oom', certain: true });
    expect(await judge(log, crash)).toMatchObject({ class: 'device_oom', certain: true });
  });

  it('settles a text that can mean something else', async () => {
    const text = traceback(
      'RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`',
    );
    expect(await judge(text, { exitCode: 1 })).toMatchObject({ class: 'device_oom', certain: false, ambiguous: true });
    expect(await judge(text, { exitCode: 1, ledger: refused('cuda:0') })).toMatchObject({
      class: 'device_oom',
      certain: true,
      ambiguous: false,
    });
    const solver = traceback(
      'RuntimeError: cusolver error: CUSOLVER_STATUS_INTERNAL_ERROR, when calling `cusolverDnSgetrf`',
    );
    expect((await judge(solver, { exitCode: 1 })).class).toBe('device_fault');
    expect((await judge(solver, { exitCode: 1, ledger: refused('cuda:0') })).class).toBe('device_oom');
  });

  it('does not make an error of the program one of memory: allocators retry', async () => {
    const d = await judge(traceback("KeyError: 'loss'"), { exitCode: 1, ledger: refused('cuda:0') });
    expect(d.class).toBe('user_error');
  });

  it('makes want of host memory one of the device, where the host is the device', async () => {
    const text = traceback('MemoryError');
    expect((await judge(text, { exitCode: 1 })).class).toBe('host_oom');
    expect((await judge(text, { exitCode: 1, device: 'cpu' })).class).toBe('host_oom');
    expect((await judge(text, { exitCode: 1, device: 'cpu', ledger: refused('cpu') })).class).toBe('device_oom');
  });
});

describe("a text that speaks of a GPU's memory, from a job on the CPU", () => {
  const died = { exitCode: 1, device: 'cpu' } as const;

  it('is none of memory, whether there is a ledger or nothing ever asked for memory', async () => {
    const none = { ...refused('cpu'), refused: 0, refusals: [] };
    for (const text of [`${OOM}\n`, traceback(OOM)]) {
      for (const ledger of [null, none])
        expect((await judge(text, { ...died, ledger })).class, text).toBe('user_error');
      expect((await judge(text, { exitCode: 1, device: 'cuda', ledger: null })).class).toBe('device_oom');
    }
  });
});

describe("the hook's exception", () => {
  const hook = { class: 'torch.OutOfMemoryError', message: OOM.slice(24), phase: 'eval', oom: true } as const;

  it('is believed where the log is silent', async () => {
    const d = await judge('', { exitCode: 1, hook });
    expect(d).toMatchObject({ class: 'device_oom', certain: true, phase: 'eval', line: null });
    expect(d.fields.tried_bytes).toBe(2 * 2 ** 30);
  });

  it('takes its line from the log where that has it too', async () => {
    const d = await judge(`step 1\n${traceback(OOM)}`, { exitCode: 1, hook });
    expect(d).toMatchObject({ class: 'device_oom', phase: 'eval', line: 5 });
  });

  it('is no failure where the job ended well', async () => {
    expect((await judge('', { exitCode: 0, hook })).class).toBe('ok');
  });

  it('of another kind is the failure, whatever had been caught before', async () => {
    const d = await judge(`${traceback(OOM)}skipping batch\n`, {
      exitCode: 1,
      hook: { class: 'KeyError', message: "'loss'", phase: 'train', oom: false },
    });
    expect(d).toMatchObject({ class: 'user_error', phase: 'train' });
  });

  it('raised while an OOM was handled is a fault of the handler', async () => {
    const chain = `${traceback(OOM)}\nDuring handling of the above exception, another exception occurred:\n\n${traceback("NameError: name 'x' is not defined")}`;
    const d = await judge('', {
      exitCode: 1,
      hook: { class: 'NameError', message: "name 'x' is not defined", phase: 'train', oom: false, traceback: chain },
    });
    expect(d.class).toBe('user_error');
  });

  it('on the CPU is one of memory there only if something was refused', async () => {
    const died = { exitCode: 1, device: 'cpu' } as const;
    const short = { class: 'MemoryError', message: '', phase: 'train', oom: true } as const;
    const none = { ...refused('cpu'), refused: 0, refusals: [] };
    expect(await judge('', { ...died, hook: short, ledger: none })).toMatchObject({ class: 'host_oom' });
    expect(await judge('', { ...died, hook: short, ledger: refused('cpu') })).toMatchObject({ class: 'device_oom' });
    const primitive = { ...short, class: 'RuntimeError', message: 'could not execute a primitive' };
    const alone = await judge('', { ...died, hook: primitive, ledger: none });
    expect(alone).toMatchObject({ class: 'user_error', certain: false });
    const beside = await judge('', { ...died, hook: primitive, ledger: refused('cpu') });
    expect(beside).toMatchObject({ class: 'device_oom', certain: true });
  });

  it('that only echoes another rank gives way to what that rank said', async () => {
    const d = await judge(`[rank1]: ${traceback(OOM).trimEnd().replaceAll('\n', '\n[rank1]: ')}\n`, {
      exitCode: 1,
      hook: { class: 'torch.distributed.DistBackendError', message: 'NCCL error in: x', phase: 'train', oom: false },
    });
    expect(d).toMatchObject({ class: 'device_oom', rank: '1' });
  });
});

describe('an error in the hook', () => {
  const script = 'File "/home/ann/train.py", line 3, in <module>\n    loss.backward()';
  const hook = '/opt/oomtune/python/oomtune/hook';
  const judged = async (...frames: string[]) => {
    const log = `Traceback (most recent call last):\n  ${[script, ...frames].join('\n  ')}\nImportError: no name 'x'\n`;
    return (await judge(log, { exitCode: 1 })).advice;
  };

  it('is a fault in oomtune where it was raised there', async () => {
    const frame = `File "${hook}/cut/inputs.py", line 9, in outermost\n    from torch.utils import x`;
    expect(await judged(frame)).toMatch(/Report it.*--preset none/);
    expect(await judged(frame, 'File "<frozen importlib._bootstrap>", line 1176, in _find_and_load')).toMatch(
      /^Report/,
    );
    expect(await judged(frame, 'File "/usr/lib/python3.11/ast.py", line 50, in parse\n    return compile()')).toMatch(
      /^Report/,
    );
  });

  it('is the program’s where it only passed through, or is of a library that was called', async () => {
    const passed = `File "${hook}/watch/backward.py", line 9, in backward\n    return original(*args, **kwargs)`;
    const frame = `File "${hook}/cut/inputs.py", line 9, in outermost\n    self.run(batch)`;
    const library = 'File "/venv/lib/python3.11/site-packages/torch/x.py", line 5, in x\n    import y';
    for (const frames of [[passed], [frame, library], [frame, script]])
      expect(await judged(...frames)).toMatch(/^Correct/);
  });
});

describe('how a job ended', () => {
  it('says host memory only with the kernel for a witness', async () => {
    expect((await judge('', { signal: 'SIGKILL' })).class).toBe('killed');
    expect((await judge('', { signal: 'SIGKILL', hostOom: false })).class).toBe('killed');
    expect((await judge('', { signal: 'SIGKILL', hostOom: true })).class).toBe('host_oom');
    expect((await judge('', { exitCode: 137 })).class).toBe('killed');
    expect((await judge('Out of memory: Killed process 7 (python)\n', { exitCode: 137 })).class).toBe('host_oom');
  });

  it.each([
    ['SIGTERM', 'killed'],
    ['TERM', 'killed'],
    ['15', 'killed'],
    ['SIGINT', 'cancelled'],
    ['SIGSEGV', 'user_error'],
    ['SIGBUS', 'shm'],
    ['SIGXCPU', 'timeout'],
  ])('by %s is %s', async (signal, wanted) => {
    expect((await judge('step 1 loss 2\n', { signal })).class).toBe(wanted);
  });

  it.each([
    ['SIGKILL', /kernel for want of host memory/],
    ['SIGTERM', /^(?!.*kernel).*preemption.*checkpoints/],
    ['SIGHUP', /oomtune submit.*nohup/],
    ['SIGXCPU', /ulimit -t/],
  ])('by %s has a remedy of its own', async (signal, advice) => {
    expect((await judge('step 1 loss 2\n', { signal })).advice).toMatch(advice);
  });

  it.each([
    [124, 'timeout'],
    [130, 'cancelled'],
    [137, 'killed'],
    [143, 'killed'],
    [-9, 'killed'],
    [247, 'killed'],
    [139, 'user_error'],
    [1, 'user_error'],
    [0, 'ok'],
  ])('with exit code %i and no error text is %s', async (exitCode, wanted) => {
    expect((await judge('step 1 loss 2\n', { exitCode })).class).toBe(wanted);
  });

  it('is the evidence where no line tells of a failure', async () => {
    const log = 'step 1 loss 2\nstep 2 error 0.5 loss 1\n';
    const evidence = async (more: Partial<DiagnoseInput>, text = log) => (await judge(text, more)).evidence;
    expect(await evidence({ signal: 'SIGSEGV' })).toBe('ended by SIGSEGV');
    expect(await evidence({ exitCode: 139 })).toBe('ended by SIGSEGV');
    expect(await evidence({ exitCode: 7 })).toBe('ended with exit code 7');
    expect(await evidence({ exitCode: 7 }, `${log}no config: giving up, cannot go on\n`)).toContain('cannot go on');
  });

  it('by a crash in native code is advised to look with faulthandler', async () => {
    for (const signal of ['SIGSEGV', 'SIGABRT'])
      expect((await judge('step 1 loss 2\n', { signal })).advice, signal).toContain('python -X faulthandler');
  });

  it('is named, where nothing else tells why', async () => {
    expect((await judge('step 1 loss 2\n', { signal: 'SIGABRT' })).cause).toBe(
      'It was ended by SIGABRT, with no error text.',
    );
    expect((await judge('step 1 loss 2\n', { exitCode: 3 })).cause).toBe(
      'It ended with exit code 3, with no error text.',
    );
  });

  it('whose log had no room left is of a full disk, unless its output tells more', async () => {
    const full = await judge('step 1 loss 2\n', { exitCode: 1, lostBytes: 2048 });
    expect(full).toMatchObject({ class: 'disk_full', certain: false });
    expect(full.cause).toBe('The disk of its log was full: 2 KiB of its output were lost.');
    expect(full.advice).toContain('Free some space');
    expect((await judge(traceback('ValueError: no'), { exitCode: 1, lostBytes: 2048 })).class).toBe('user_error');
    expect((await judge('step 1 loss 2\n', { exitCode: 0, lostBytes: 2048 })).class).toBe('ok');
  });

  it('by its own time limit or by request is told by the one who did it', async () => {
    expect((await judge('step 1 loss 2\n', { signal: 'SIGTERM', endedBy: 'timeout' })).class).toBe('timeout');
    expect((await judge('step 1 loss 2\n', { exitCode: 0, endedBy: 'timeout' })).class).toBe('timeout');
    expect((await judge(traceback(OOM), { signal: 'SIGTERM', endedBy: 'cancel' })).class).toBe('cancelled');
    expect((await judge(traceback(OOM), { signal: 'SIGTERM', endedBy: 'timeout' })).class).toBe('device_oom');
  });
});

describe('who held the memory', () => {
  it('is named where the device list knows the pid', async () => {
    const text = traceback(
      `${OOM} Process 1234 has 10.00 GiB memory in use. Including non-PyTorch memory, this process has 12.49 GiB memory in use.`,
    );
    const neighbours = [{ pid: 1234, name: 'python other.py', used_bytes: 1, ours: false }];
    const d = await judge(text, { exitCode: 1, neighbours });
    expect(d).toMatchObject({ reason: 'neighbour', cure: 'wait' });
    expect(d.cause).toContain('pid 1234 python other.py: 10 GiB');
  });

  it('is a leak where memory grew step by step, and no batch helps', async () => {
    const d = await judge(traceback(OOM), { exitCode: 1, growth: { bytesPerStep: 1 << 20, steps: 40 } });
    expect(d).toMatchObject({ reason: 'leak', cure: 'none' });
    expect(d.cause).toContain('1 MiB a step over 40 steps');
  });

  it('is evaluation without no_grad where the hook saw gradients there', async () => {
    const text = traceback(OOM, 'File "train.py", line 9, in evaluate');
    expect((await judge(text, { exitCode: 1, gradInEval: true })).cause).toContain('torch.no_grad() is missing');
    expect((await judge(text, { exitCode: 1, gradInEval: true })).advice).toContain('under torch.no_grad()');
    const cpu = text.replace(OOM, CPU_OOM);
    for (const seen of [
      judge(text, { exitCode: 1, gradInEval: false }),
      judge(cpu, { exitCode: 1, gradInEval: false, device: 'cpu' }),
    ]) {
      const without = await seen;
      expect(without.cause).toContain('keeps no graph');
      // It is there already.
      expect(without.advice).toContain('smaller batch of its own');
      expect(without.advice).not.toContain('no_grad');
    }
  });

  it('is the data set where the hook saw it give out tensors of the device', async () => {
    expect(await judge(traceback(OOM), { exitCode: 1, deviceData: true })).toMatchObject({
      reason: 'data',
      cure: 'none',
    });
  });
});

describe('a file system that is read only', () => {
  it('is told as that, and what libraries get on without is not', async () => {
    const read = "OSError: [Errno 30] Read-only file system: 'out.txt'";
    const d = await judge(traceback(read), { exitCode: 1 });
    expect(d).toMatchObject({ class: 'user_error', signature: 'read-only', evidence: read });
    expect(d.advice).toContain('mounted');
    const cache = 'mkdir -p failed for path /.config/matplotlib: [Errno 30] Read-only file system\n';
    const other = await judge(`${cache}${traceback("KeyError: 'loss'")}`, { exitCode: 1 });
    expect(other).toMatchObject({ evidence: "KeyError: 'loss'" });
  });
});

describe('a log with more errors than are kept', () => {
  it.each([255, 256, 257, 300, 767, 768, 2000])('%i of them, is judged by its last ones', async (count) => {
    const warned = Array.from(
      { length: count },
      (_, i) => `WARNING: CUDA out of memory. Tried to allocate ${i + 1}.00 GiB; retrying`,
    );
    const log = `${warned.join('\n')}\n${traceback("KeyError: 'loss'")}`;
    expect(await judge(log, { exitCode: 1 })).toMatchObject({ class: 'user_error', evidence: "KeyError: 'loss'" });
  });
});

describe('a job on the CPU', () => {
  const budget = (size: number): LedgerReading => ({
    devices: [{ device: 'cpu', live_bytes: 0, peak_bytes: size, overhead_bytes: 0, budget_bytes: 1000 }],
    refused: 1,
    refusals: [
      {
        pid: 7,
        api: 'mmap',
        size_bytes: size,
        live_bytes: 0,
        budget_bytes: 1000,
        by: 'budget',
        device: 'cpu',
        at: '2026-01-01T00:00:00Z',
      },
    ],
    blind: false,
  });
  const judged = (size: number, phase: HookException['phase']) =>
    judge(traceback('MemoryError'), {
      exitCode: 1,
      device: 'cpu',
      totalBytes: 1000,
      ledger: budget(size),
      hook: { class: 'MemoryError', message: '', phase, frame: null, oom: true, kept_by: null, traceback: '' },
    });

  it('that asks for more than its budget is told of that, and not of a device', async () => {
    expect((await judged(2000, 'train')).cause).toContain('is larger than the whole budget (1000 B)');
  });

  it('that its machine refuses far less than its budget is told of the machine’s limits', async () => {
    const log = 'OpenBLAS error: Memory allocation still failed after 10 retries, giving up.\n';
    const told = (held: number) => {
      const refusals = budget(100).refusals.map((one) => ({ ...one, by: 'driver' as const, live_bytes: held }));
      return judge(log, { exitCode: 1, device: 'cpu', ledger: { ...budget(100), refusals } });
    };
    const far = await told(50);
    expect(far).toMatchObject({ class: 'host_oom', certain: true, reason: 'limit', cure: 'none', ambiguous: false });
    expect(far.cause).toBe('The machine refused it 100 B more while it held 50 B of its budget of 1000 B.');
    expect(far.advice).toMatch(/ulimit -v.*overcommit.*container/);
    expect(far.evidence).toContain('OpenBLAS error');
    expect(await told(600)).toMatchObject({ class: 'device_oom', reason: 'batch', cure: 'smaller' });
  });

  it('that runs out while it loads is not told to load on the CPU', async () => {
    const { reason, advice } = await judged(200, 'load');
    expect(reason).toBe('load');
    expect(advice).toMatch(/memory-mapped.*--budget/);
    expect(advice).not.toContain('on the CPU');
  });

  it.each([
    ['eval', /no_grad.*sums of its outputs/],
    ['save', /to a file rather than to memory \(BytesIO\), and in parts/],
    ['after', /in parts/],
  ] as const)('that runs out in phase %s is not told to move anything to the CPU', async (phase, remedy) => {
    const { reason, advice } = await judged(200, phase);
    expect(reason).toBe(phase);
    expect(advice).toMatch(remedy);
    expect(advice).not.toMatch(/CPU|cpu/);
  });
});
