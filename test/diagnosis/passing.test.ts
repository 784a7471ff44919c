import { describe, expect, it } from 'vitest';
import { diagnose } from '../../src/worker/diagnosis/index.js';

/** The verdict on a log alone: no exit code, no ledger. */
async function verdict(...lines: string[]): Promise<string> {
  const { class: found } = await diagnose({ log: [Buffer.from(`${lines.join('\n')}\n`)] });
  return found;
}

const work = (n: number) => Array.from({ length: n }, (_, i) => `wrote part ${i} of the table to disk`);

describe('what programs say of what they get on without', () => {
  it.each([
    ['a shell', '/home/ann/.bashrc: line 13: s: command not found'],
    ['a script', 'prepare.sh: line 20: cd: /scratch/run2: No such file or directory'],
    ['cp', 'cp: cannot create regular file ‘/scratch/run2/’: No such file or directory'],
    ['a library', 'classifier.bias | shape mismatch: value array has 1000 rows'],
    ['a download that a cache stands in for', 'Could not resolve host: example.org'],
  ])('ended nothing where the log goes on: %s', async (_, line) => {
    expect(await verdict('starting', line, ...work(25))).toBe('ok');
    expect(await verdict('starting', line, ...work(3), 'Job night-run complete')).toBe('ok');
  });

  it('is the reason where nothing comes after it', async () => {
    expect(await verdict('starting', 'run.sh: line 7: torchrun: command not found')).toBe('user_error');
    expect(await verdict('starting', 'Could not resolve host: example.org')).toBe('network');
  });

  it('is the reason where the job failed, whatever comes after it', async () => {
    const log = ['starting', 'run.sh: line 7: torchrun: command not found', ...work(25)].join('\n');
    expect(await diagnose({ log: [Buffer.from(log)], exitCode: 127 })).toMatchObject({ class: 'user_error' });
  });

  it('ends the job where it is raised', async () => {
    const raised = ['Traceback (most recent call last):', '  File "t.py", line 3, in <module>', '    main()'];
    expect(await verdict(...raised, "FileNotFoundError: [Errno 2] No such file or directory: 'a'", ...work(25))).toBe(
      'user_error',
    );
  });

  it('is nothing of tidying up', async () => {
    const lines = [
      'ls: cannot access out/net.1*: No such file or directory',
      'rm: cannot remove ‘out/*’: No such file',
    ];
    expect(await verdict(...lines)).toBe('ok');
  });
});

describe('a thread', () => {
  const died = (at: string) => [
    'Traceback (most recent call last):',
    `  File "/usr/lib/python3.10/threading.py", line 1016, in _bootstrap_inner`,
    '    self.run()',
    `  File "${at}", line 202, in run`,
    '    data = self._queue.get(True, wait)',
    'OSError: handle is closed',
  ];

  it('that fails when the job is done ended nothing', async () => {
    const log = [
      'step 99 | loss 0.1',
      'step 100 | loss 0.1',
      'Training finished',
      'Exception in thread Thread-1:',
      'bye',
      ...died('/opt/writer.py'),
    ];
    expect(await verdict(...log)).toBe('ok');
  });

  it('is the reason where nothing else is there', async () => {
    expect(await verdict('step 99 | loss 0.1', ...died('/opt/writer.py'))).toBe('user_error');
  });
});

describe('who stopped the job', () => {
  it('is told by Slurm, though lines on their way come after it', async () => {
    const log = [
      '  4%|▍ | 40/900 [00:10<02:10, 3.0it/s]slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2025-06-06T11:58:22 ***',
      '  5%|▍ | 41/900 [00:10<02:10, 3.0it/s]',
      '  5%|▍ | 42/900 [00:11<02:10, 3.0it/s]',
      '  5%|▍ | 43/900 [00:11<02:10, 3.0it/s]',
    ];
    expect(await verdict(...log)).toBe('cancelled');
  });

  it('is who owns it, whatever its script says then and however it ended', async () => {
    const slurm = 'slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2025-06-06T11:58:22 ***';
    expect(await verdict('starting', slurm, 'script: line 30: 77: command not found')).toBe('cancelled');
    expect(await verdict('starting', 'TERM_OWNER: job killed by owner.', 'Exited with exit code 143.')).toBe(
      'cancelled',
    );
  });

  it('is told by the last run of a log', async () => {
    const first = 'slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2025-06-06T11:58:22 ***';
    const last = 'slurmstepd: error: *** JOB 79 ON n1 CANCELLED AT 2025-06-07T09:00:00 DUE TO PREEMPTION ***';
    expect(await verdict('starting', first, 'step 1 loss 2', 'step 2 loss 2', last)).toBe('killed');
  });

  it('is not who stopped the run before it', async () => {
    const first = 'slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2025-06-06T11:58:22 ***';
    expect(await verdict('starting', first, ...work(70), 'ERROR: LoadError: Some tests did not pass: 1 failed')).toBe(
      'user_error',
    );
  });

  it('may have been told by a rank: what a launcher kills then is no reason', async () => {
    const log = [
      '[rank3]: Traceback (most recent call last):',
      '[rank3]:   File "/opt/train.py", line 58, in <module>',
      '[rank3]:     main()',
      "[rank3]: OSError: [Errno 5] Input/output error: '/data/out'",
      '[rank: 3] Child process with PID 170 terminated with code 1. Terminating all other processes',
      'Killed',
    ];
    expect(await verdict(...log)).toBe('user_error');
  });

  it('may say that the training is over', async () => {
    const log = ['epoch 6 loss 1.2', 'Keyboard interruption. Leaving the loop', 'Training took 00:09:17'];
    expect(await verdict(...log)).toBe('cancelled');
  });
});

describe('an exit code', () => {
  it.each([
    'Process `map:index (1)` terminated with an error exit status (137)',
    'The exit status of the task that caused the workflow to fail was: 137.',
    'worker 3: exit code -9',
    '{"ExitCode": 137}',
  ])('of a signal is read however it is put: %s', async (line) => {
    expect(await verdict('starting', line)).toBe('killed');
  });

  it('of a shell that could not read its script is no success', async () => {
    expect(await verdict('starting', '/var/spool/job7/script: line 98: syntax error: unexpected end of file')).toBe(
      'user_error',
    );
    expect(await verdict('starting', "The command '/bin/sh -c pip3 install x' returned a non-zero code: 1")).toBe(
      'user_error',
    );
  });
});

describe('an exception that no entry names', () => {
  const raise = (error: string) =>
    verdict('Traceback (most recent call last):', '  File "t.py", line 3, in <module>', '    main()', error);
  it.each([
    ['grid.errors.HostConnectionLost: gone', 'network'],
    ['acme.GatewayTimeoutError: no answer', 'network'],
    ['acme.JobCancelledError: by request', 'cancelled'],
    ['acme.TensorOutOfMemoryException: 3 GiB', 'device_oom'],
    ['acme.ArenaMemoryError: 3 GiB', 'host_oom'],
    ['acme.WrongShapeError: 3 is not 4', 'user_error'],
  ])('is read by the parts of its name: %s', async (error, expected) => {
    expect(await raise(error)).toBe(expected);
  });
});

describe('an error that says no more than its name', () => {
  it('is what the lines beside it say', async () => {
    const log = [
      'Traceback (most recent call last):',
      '  File "t.py", line 3, in <module>',
      '    return dist._verify_params_across_processes(process_group, tensors, logger)',
      'RuntimeError',
      '',
      'NCCL error in: /pytorch/ProcessGroupNCCL.cpp:1191, invalid usage, NCCL version 2.10.3',
    ];
    expect(await verdict(...log)).toBe('network');
    expect(await verdict(...log.slice(0, 4))).toBe('user_error');
  });
});

describe('a warning', () => {
  it('of Python is one, however far down it comes from', async () => {
    const path = `/scratch/${'environments/'.repeat(12)}torch/amp/autocast_mode.py`;
    const said = "User provided device_type of 'cuda', but CUDA is not available. Disabling";
    expect(await verdict('starting', `${path}:266: UserWarning: ${said}`, '  warnings.warn(')).toBe('ok');
  });

  it('of GTK is none of a failure, though it calls itself critical', async () => {
    expect(await verdict('starting', "(sim.py:28): Gdk-CRITICAL **: 09:50: assertion 'DISPLAY' failed")).toBe('ok');
  });
});

describe('a warning of native code', () => {
  it('is none of a failure, whatever it calls itself and a time before it', async () => {
    const line = '2021-10-06 15:57:04.287185: W external/org_x/cuda_driver.cc:269] failed call: UNKNOWN ERROR (303)';
    expect(await verdict('starting', line)).toBe('ok');
  });
});

describe('a progress bar that is printed once more as its process ends', () => {
  const bar = (n: number) => ` ${n * 10}%|███   | ${n}/10 [00:0${n}<00:09,  1.26it/s]`;
  const raised = ['Traceback (most recent call last):', '  File "t.py", line 3, in <module>', '    trainer.train()'];
  const error = 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.';

  it('is no progress behind the error, though it shows steps that it had not shown before', async () => {
    expect(await verdict(bar(1), ...raised, error, bar(3))).toBe('device_oom');
  });

  it.each([
    ['it is full', [bar(10)]],
    ['other lines of progress follow', [bar(3), bar(4)]],
  ])('shows that the error was got over where %s', async (_, lines) => {
    expect(await verdict(bar(1), ...raised, error, ...lines)).toBe('ok');
  });
});

describe('how what a script ran ended, in brackets', () => {
  it.each([
    'eval_summaries FAILED (exit 1)',
    '[FAIL] nightly: fine-tuning of b7 (exit code 3)',
    'stage two ended (exited with status 2)',
    'prepare.py (return value 134)',
  ])('is a failure with the date behind it, and none where a later run is told to be done: %s', async (line) => {
    const log = ['=== nightly ===', 'Node: n17', '[....] running', '', line, 'End: Mon May 4 09:51:12 AM 2026'];
    expect(await verdict(...log)).toBe('user_error');
    expect(await verdict(...log, 'Training complete')).toBe('ok');
  });

  it.each(['fine-tuning of b7 done (exit 0)', 'stage two (exit code: 0)', 'the loop is left by break (exit 1 of 3)'])(
    'is none where it went well: %s',
    async (line) => {
      expect(await verdict('=== nightly ===', line, 'End: Mon May 4 09:51:12 AM 2026')).toBe('ok');
    },
  );
});

describe('the socket on which NCCL can be asked how it is', () => {
  const at = '[2026-05-04 06:57:46] n17:5295:5356 [0]';
  const taken = 'NCCL WARN Call to bind failed: Address already in use';

  it('ended nothing where it cannot be had, and any other socket did', async () => {
    expect(await verdict('starting', `${at} ras/client_support.cc:160 ${taken}`)).toBe('ok');
    expect(await verdict('starting', `${at} misc/socket.cc:418 ${taken}`)).toBe('network');
  });

  it('is not the reason of what failed later', async () => {
    const log = [`${at} ras/client_support.cc:160 ${taken}`, ...work(3), 'train.sh: line 7: nvcc: command not found'];
    expect(await diagnose({ log: [Buffer.from(log.join('\n'))], exitCode: 127 })).toMatchObject({
      class: 'user_error',
    });
  });
});

describe('an exit code that programs give for any failure', () => {
  it.each([255, 254, 253])('tells of no signal: %i', async (exitCode) => {
    const log = [Buffer.from('starting\nreading the table\n')];
    expect(await diagnose({ log, exitCode })).toMatchObject({ class: 'user_error', certain: false });
  });

  it.each([
    [247, 'killed'],
    [241, 'killed'],
    [245, 'user_error'],
  ])('tells of the signal that a launcher passes on: %i', async (exitCode, found) => {
    const log = [Buffer.from('starting\nreading the table\n')];
    expect(await diagnose({ log, exitCode })).toMatchObject({ class: found });
  });
});

it('a count of preempted requests among the figures of a step took no place back', async () => {
  const step = (n: number) => `step:${n} - timing_s/job:3.1 - agent/num_preempted/max:-1 - aborted_ratio:0.0`;
  expect(await verdict(step(1), step(2), step(3))).toBe('ok');
  const log = [Buffer.from(`${step(1)}\n${step(2)}\n`)];
  expect(await diagnose({ log, exitCode: 1 })).toMatchObject({ class: 'user_error' });
});

it('what a program lists as possible causes is none that it found', async () => {
  const died = '(raylet) A worker died or was killed while executing a task by an unexpected system error.';
  const detail = 'Worker unexpectedly exits with a connection error code 2. End of file.';
  for (const causes of [
    'Some common causes include: (1) the process was killed by the OOM killer due to high memory usage, or (2) SIGSEGV',
    'There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer. (2) CUDA out of memory.',
  ])
    expect(await verdict(`${died} Worker exit detail: ${detail} ${causes}`)).toBe('killed');
});
