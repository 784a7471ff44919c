import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { ERROR_CODES } from '../../src/common/errors.js';
import { Oomtune, PROGRAM } from './oomtune.js';

const oomtune = new Oomtune();
afterAll(() => oomtune.close());

interface Case {
  args: string[];
  exit: number;
  code: keyof typeof ERROR_CODES;
  /** What the sentence or its remedy must name. */
  says: RegExp;
}

const CASES: Case[] = [
  { args: ['frobnicate'], exit: 2, code: 'OOMTUNE_USAGE', says: /no verb "frobnicate"/ },
  { args: ['statsu'], exit: 2, code: 'OOMTUNE_USAGE', says: /oomtune status/ },
  { args: ['help', 'frobnicate'], exit: 2, code: 'OOMTUNE_USAGE', says: /no such verb/ },
  { args: ['status', '--device', 'foo'], exit: 2, code: 'OOMTUNE_USAGE', says: /--device.*cuda:N.*"foo"/ },
  { args: ['status', '--frob'], exit: 2, code: 'OOMTUNE_USAGE', says: /--frob/ },
  { args: ['find-batch', '--bugdet', '1GiB', '--', 'true'], exit: 2, code: 'OOMTUNE_USAGE', says: /--budget/ },
  { args: ['find-batch'], exit: 2, code: 'OOMTUNE_USAGE', says: /no command/ },
  { args: ['run', '--'], exit: 2, code: 'OOMTUNE_USAGE', says: /no command/ },
  { args: ['submit', 'python', 'x.py'], exit: 2, code: 'OOMTUNE_USAGE', says: /-- python x\.py/ },
  { args: ['find-batch', '--budget', '24GB?', '--', 'true'], exit: 2, code: 'OOMTUNE_BAD_SIZE', says: /24GB\?/ },
  { args: ['find-batch', '--budget', '0', '--', 'true'], exit: 2, code: 'OOMTUNE_BAD_SIZE', says: /"0".*above 0/s },
  { args: ['find-batch', '--budget', '120%', '--', 'true'], exit: 2, code: 'OOMTUNE_BAD_SIZE', says: /120%/ },
  ...['find-batch', 'run', 'submit'].map((verb) => ({
    args: [verb, '--budget', '24', '--', 'true'],
    exit: 2,
    code: 'OOMTUNE_BAD_SIZE',
    says: /"24" has no unit.*24GiB or 24MiB/s,
  })),
  {
    args: ['find-batch', '--min-batch', '64', '--max-batch', '8', '--', 'true'],
    exit: 2,
    code: 'OOMTUNE_USAGE',
    says: /--min-batch 64 is above --max-batch 8/,
  },
  { args: ['run', '--min-batch', '0', '--', 'true'], exit: 2, code: 'OOMTUNE_USAGE', says: /--min-batch/ },
  { args: ['run', '--min-batch', 'two', '--', 'true'], exit: 2, code: 'OOMTUNE_USAGE', says: /--min-batch.*two/ },
  {
    args: ['run', '--effective-batch', '-4', '--', 'true'],
    exit: 2,
    code: 'OOMTUNE_USAGE',
    says: /--effective-batch.*-4/,
  },
  { args: ['run', '--steps', '1', '--', 'true'], exit: 2, code: 'OOMTUNE_USAGE', says: /--steps/ },
  { args: ['run', '--timeout', 'soon', '--', 'true'], exit: 2, code: 'OOMTUNE_USAGE', says: /--timeout/ },
  { args: ['run', '--headroom', '101', '--', 'true'], exit: 2, code: 'OOMTUNE_USAGE', says: /--headroom/ },
  {
    args: ['run', '--amp', 'fp8', '--', 'true'],
    exit: 2,
    code: 'OOMTUNE_USAGE',
    says: /Expected --amp to be one of auto, off, bf16, fp16, got "fp8"/,
  },
  {
    args: ['run', '--micro-batch-tokens', 'x', '--', 'true'],
    exit: 2,
    code: 'OOMTUNE_USAGE',
    says: /Expected --micro-batch-tokens to be auto or a whole number of tokens, at least 1, got "x"/,
  },
  {
    args: ['submit', '--share=foo', '--', 'true'],
    exit: 2,
    code: 'OOMTUNE_USAGE',
    says: /Expected --share to be auto, or given without a value, got "foo"/,
  },
  {
    args: ['daemon', 'start', '--label', 'rack=b', '--label=-x'],
    exit: 2,
    code: 'OOMTUNE_USAGE',
    says: /Expected --label to be a label such as rack=b or nvlink, got "-x"/,
  },
  {
    args: ['run', '--checkpointing', 'yes', '--', 'true'],
    exit: 2,
    code: 'OOMTUNE_USAGE',
    says: /--checkpointing.*yes/,
  },
  { args: ['run', '--objective', 'speed', '--', 'true'], exit: 2, code: 'OOMTUNE_USAGE', says: /--objective.*speed/ },
  { args: ['run', '--exact', '--amp', 'bf16', '--', 'true'], exit: 2, code: 'OOMTUNE_USAGE', says: /--exact/ },
  { args: ['run', '--device', 'tpu', '--', 'true'], exit: 2, code: 'OOMTUNE_USAGE', says: /--device.*tpu/ },
  { args: ['run', '--device', 'cpu', '--gpus', '2', '--', 'true'], exit: 2, code: 'OOMTUNE_USAGE', says: /--gpus/ },
  {
    args: ['submit', '--device', 'cpu', '--gpu-model', 'H200', '--', 'true'],
    exit: 2,
    code: 'OOMTUNE_USAGE',
    says: /--gpu-model H200 cannot be had with --device cpu/,
  },
  { args: ['submit', '--name', '@', '--', 'true'], exit: 2, code: 'OOMTUNE_USAGE', says: /is not "@"/ },
  { args: ['run', '--name', 'a*', '--', 'true'], exit: 2, code: 'OOMTUNE_USAGE', says: /--name.*"\*".*a\*/ },
  { args: ['run', '--name', 'a:b', '--', 'true'], exit: 2, code: 'OOMTUNE_USAGE', says: /--name.*a:b/ },
  { args: ['run', '--preset', 'no-such', '--', 'true'], exit: 2, code: 'OOMTUNE_USAGE', says: /no-such/ },
  { args: ['run', '--env', '1A=b', '--', 'true'], exit: 2, code: 'OOMTUNE_USAGE', says: /1A/ },
  { args: ['run', '--env-file', '/no/such', '--', 'true'], exit: 2, code: 'OOMTUNE_USAGE', says: /\/no\/such/ },
  { args: ['run', '--cwd', '/no/such', '--', 'true'], exit: 2, code: 'OOMTUNE_USAGE', says: /\/no\/such/ },
  {
    args: ['run', '--report', '/no/such/file', '--', 'true'],
    exit: 2,
    code: 'OOMTUNE_USAGE',
    says: /\/no\/such\/file/,
  },
  { args: ['run', '--', 'true', '{foo}'], exit: 2, code: 'OOMTUNE_BAD_PLACEHOLDER', says: /\{foo\}/ },
  {
    args: ['submit', '--', 'true', '--batch={micro_bach}'],
    exit: 2,
    code: 'OOMTUNE_BAD_PLACEHOLDER',
    says: /micro_batch/,
  },
  { args: ['--redis', 'http://localhost', 'status'], exit: 2, code: 'OOMTUNE_USAGE', says: /http:\/\/localhost/ },
  {
    args: ['status', '--redis', 'redis://user:hunter2@127.0.0.1:1/0'],
    exit: 5,
    code: 'OOMTUNE_REDIS_UNREACHABLE',
    says: /127\.0\.0\.1:1/,
  },
  {
    args: ['status', '--redis', 'unix:///no/such.sock'],
    exit: 5,
    code: 'OOMTUNE_REDIS_UNREACHABLE',
    says: /no\/such\.sock/,
  },
  {
    args: ['run', '--device', 'cpu', '--', '/no/such/program'],
    exit: 5,
    code: 'OOMTUNE_COMMAND_MISSING',
    says: /\/no\/such\/program/,
  },
  {
    args: ['find-batch', '--device', 'cpu', '--', 'no-such-program', '{micro_batch}'],
    exit: 5,
    code: 'OOMTUNE_COMMAND_MISSING',
    says: /no-such-program/,
  },
  {
    args: ['find-batch', '--device', 'cpu', '--', 'no-such-program', 'train'],
    exit: 5,
    code: 'OOMTUNE_COMMAND_MISSING',
    says: /no-such-program/,
  },
  { args: ['run', '--report', '/tmp', '--', 'true'], exit: 2, code: 'OOMTUNE_USAGE', says: /\/tmp.*folder/ },
  { args: ['run', '--cwd', '/etc/passwd/x', '--', 'true'], exit: 2, code: 'OOMTUNE_USAGE', says: /does not exist/ },
  { args: ['run', '--cwd', '/etc/passwd', '--', 'true'], exit: 2, code: 'OOMTUNE_USAGE', says: /passwd is no folder/ },
  { args: ['submit', '--', 'no-such-program'], exit: 5, code: 'OOMTUNE_COMMAND_MISSING', says: /no-such-program/ },
  {
    args: ['find-batch', '--device', 'cuda:77', '--', 'true', '{micro_batch}'],
    exit: 5,
    code: 'OOMTUNE_DEVICE_MISSING',
    says: /cuda:77/,
  },
  { args: ['find-batch', '--device', 'cpu', '--', 'true'], exit: 2, code: 'OOMTUNE_NO_KNOB', says: /\{micro_batch\}/ },
  {
    args: ['find-batch', '--device', 'cpu', '--', 'python3', '-I', 'train.py'],
    exit: 2,
    code: 'OOMTUNE_NO_KNOB',
    says: /-I keeps the hook out[\s\S]*Leave -I out/,
  },
  { args: ['logs', 'j-nothere'], exit: 6, code: 'OOMTUNE_NO_SUCH_JOB', says: /j-nothere/ },
  { args: ['status', 'j-nothere'], exit: 6, code: 'OOMTUNE_NO_SUCH_JOB', says: /j-nothere/ },
  { args: ['wait', '@'], exit: 6, code: 'OOMTUNE_NO_SUCH_JOB', says: /No job/ },
  { args: ['cancel', 'j-nothere'], exit: 6, code: 'OOMTUNE_NO_SUCH_JOB', says: /j-nothere/ },
  { args: ['retry', 'j-nothere'], exit: 6, code: 'OOMTUNE_NO_SUCH_JOB', says: /j-nothere/ },
  { args: ['hold', 'j-nothere'], exit: 6, code: 'OOMTUNE_NO_SUCH_JOB', says: /j-nothere/ },
  { args: ['explain', 'j-nothere'], exit: 6, code: 'OOMTUNE_NO_SUCH_JOB', says: /j-nothere/ },
  { args: ['submit', '--after', 'j-nothere', '--', 'true'], exit: 6, code: 'OOMTUNE_NO_SUCH_JOB', says: /j-nothere/ },
  { args: ['recommend', 'nothing-of-it'], exit: 6, code: 'OOMTUNE_NO_SUCH_CONFIG', says: /nothing-of-it/ },
  { args: ['recommend', 'one', 'two'], exit: 2, code: 'OOMTUNE_USAGE', says: /Too many arguments/ },
  { args: ['recommend', '--apply'], exit: 2, code: 'OOMTUNE_USAGE', says: /command/ },
  { args: ['diagnose', '/no/such.log'], exit: 2, code: 'OOMTUNE_USAGE', says: /\/no\/such\.log/ },
  { args: ['diagnose', '--signal', 'SIGNOPE'], exit: 2, code: 'OOMTUNE_USAGE', says: /SIGNOPE/ },
  { args: ['wait', '--', '-x'], exit: 6, code: 'OOMTUNE_NO_SUCH_JOB', says: /"-x"/ },
  { args: ['--redis', '', 'status', '--', '-x'], exit: 6, code: 'OOMTUNE_NO_SUCH_JOB', says: /"-x"/ },
  { args: ['diagnose', '--', '-no-such.log'], exit: 2, code: 'OOMTUNE_USAGE', says: /-no-such\.log/ },
  { args: ['devices', '--', 'more'], exit: 2, code: 'OOMTUNE_USAGE', says: /Too many arguments/ },
  { args: ['completion', 'tcsh'], exit: 2, code: 'OOMTUNE_USAGE', says: /tcsh/ },
  { args: ['daemon'], exit: 2, code: 'OOMTUNE_USAGE', says: /start, stop, .*status, run/ },
  { args: ['redis', 'flush'], exit: 2, code: 'OOMTUNE_USAGE', says: /redis flush/ },
];

/** `--json` goes before the dashes and after the verb. */
function withJson(args: string[]): string[] {
  const dashes = args.indexOf('--');
  return dashes < 0 ? [...args, '--json'] : [...args.slice(0, dashes), '--json', ...args.slice(dashes)];
}

describe('bad input', () => {
  it.each(CASES.map((one) => [one.args.join(' ') || '(nothing)', one] as const))('%s', async (_name, expected) => {
    const { code, stdout, stderr } = await oomtune.call(expected.args);
    expect(stderr).toMatch(expected.says);
    expect(stderr).toContain(`(${expected.code})`);
    expect(stderr.match(/^oomtune: /gm)).toHaveLength(1);
    expect(stderr).not.toMatch(/^\s+at .*[(:]/m);
    expect(stderr).not.toContain('hunter2');
    expect(stdout).toBe('');
    expect(code).toBe(expected.exit);
  });

  it.each(CASES.map((one) => [one.args.join(' ') || '(nothing)', one] as const))(
    '--json: %s',
    async (_name, expected) => {
      const report = expected.args[0] === 'run' && !expected.args.includes('--report');
      const args = report ? ['run', '--report', 'report.json', ...expected.args.slice(1)] : expected.args;
      const { code, stdout } = await oomtune.call(withJson(args));
      const document = JSON.parse(stdout);
      expect(document.schema).toBe(1);
      expect(document.error.code).toBe(expected.code);
      expect(`${document.error.message} ${document.error.remedy}`).toMatch(expected.says);
      expect(stdout).not.toContain('hunter2');
      expect(code).toBe(expected.exit);
    },
  );

  it('leaves no process, no lease, no job and no recommendation behind', async () => {
    expect(oomtune.leftovers()).toEqual([]);
    expect(await oomtune.json(['status'])).toEqual({ schema: 1, jobs: [], foreground: [], unreadable: [] });
    expect(await oomtune.json(['recommend'])).toEqual({ schema: 1, recommendations: [] });
    const { devices } = (await oomtune.json(['devices'])) as { devices: { reserved_bytes: number }[] };
    expect(devices.map((device) => device.reserved_bytes)).toEqual(devices.map(() => 0));
    expect(readdirSync(oomtune.home)).not.toContain('report.json');
  });

  it('a folder that is gone is told as that', () => {
    const script = 'cd "$1" && rmdir "$1" && exec "$0" run --no-tune --device cpu -- true';
    const gone = join(oomtune.home, 'gone');
    mkdirSync(gone);
    const { status, stderr } = spawnSync('sh', ['-c', script, PROGRAM, gone], { env: oomtune.env, encoding: 'utf8' });
    expect(stderr).toContain('is gone');
    expect(status).toBe(2);
  });

  it('a word that is no UTF-8 is refused, as Node has changed it', () => {
    const script = 'exec "$0" run --json --report r.json --no-tune --device cpu -- touch "$(printf \'a\\377\')"';
    const { status, stdout } = spawnSync('sh', ['-c', script, PROGRAM], { env: oomtune.env, cwd: oomtune.home });
    const { error } = JSON.parse(stdout.toString());
    expect([status, error.code]).toEqual([2, 'OOMTUNE_USAGE']);
    expect(error.message).toContain('"a\ufffd"');
    expect(error.remedy).toContain('a variable is exported there');
    expect(readdirSync(oomtune.home).filter((name) => name.startsWith('a') || name === 'r.json')).toEqual([]);
  });

  it('a variable that is no UTF-8 is named, and one that holds the sign for that is not', () => {
    const script =
      'W="$(printf \'\\357\\277\\275\')" V="$(printf \'\\377\')" exec "$0" run --no-tune --device cpu -- printenv V';
    const { stderr } = spawnSync('sh', ['-c', script, PROGRAM], { env: oomtune.env, encoding: 'utf8' });
    expect(stderr).toContain('note: The value of V is no UTF-8');
  });

  it.each([
    ['OOMTUNE_GRACE_SECONDS', 'soon', /OOMTUNE_GRACE_SECONDS.*"soon"/],
    ['OOMTUNE_LOG', 'loud', /OOMTUNE_LOG.*trace, debug.*"loud"/],
  ])('%s=%s is refused by its name', async (name, value, says) => {
    const args = ['run', '--no-tune', '--device', 'cpu', '--', 'touch', join(oomtune.home, 'begun')];
    const { code, stderr } = await oomtune.call(args, { env: { [name]: value } });
    expect([code, stderr]).toEqual([2, expect.stringMatching(says)]);
    expect(readdirSync(oomtune.home)).not.toContain('begun');
  });

  it('a level of the log that there is none of is refused by verbs that log nothing, too', async () => {
    const { code, stderr } = await oomtune.call(['recommend'], { env: { OOMTUNE_LOG: 'bogus' } });
    expect([code, stderr]).toEqual([2, expect.stringMatching(/OOMTUNE_LOG.*trace, debug.*"bogus"/)]);
  });

  it('a stack trace is shown only when it is asked for', async () => {
    const { stderr } = await oomtune.call(['status', '--frob'], { env: { OOMTUNE_DEBUG: '1' } });
    expect(stderr).toMatch(/^\s+at .*[(:]/m);
  });

  it('a report without a name is refused, and one into a pipe leaves the pipe', async () => {
    const args = ['--no-tune', '--device', 'cpu', '--report'];
    const refused = await oomtune.call(['run', ...args, '', '--', 'touch', join(oomtune.home, 'started')]);
    expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining('The report has no name')]);
    expect(readdirSync(oomtune.home)).not.toContain('started');
    const pipe = join(oomtune.home, 'pipe');
    const script = 'mkfifo "$1" && cat "$1" & sleep 0.2; "$0" run --no-tune --device cpu --report "$1" -- true; wait';
    const { stdout } = spawnSync('sh', ['-c', script, PROGRAM, pipe], { env: oomtune.env, encoding: 'utf8' });
    expect(JSON.parse(stdout)).toMatchObject({ exit_code: 0 });
    expect(statSync(pipe).isFIFO()).toBe(true);
    rmSync(pipe);
  });

  it('one oomtune for each rank is refused, and so are ranks on several machines', async () => {
    const srun = join(oomtune.home, 'srun');
    writeFileSync(srun, '#!/bin/sh\necho started\n', { mode: 0o755 });
    const run = async (words: string[], env: NodeJS.ProcessEnv) => {
      const { code, stdout, stderr } = await oomtune.call(['run', '--device', 'cpu', ...words], { env });
      return `${code} ${stdout}${stderr}`;
    };
    const ranks: [NodeJS.ProcessEnv, RegExp | null][] = [
      [{ SLURM_STEP_NUM_TASKS: '2' }, /^2 .*srun starts oomtune 2 times/],
      [{ SLURM_NTASKS: '2', SLURM_STEP_NUM_TASKS: '1' }, null],
      [{ OMPI_COMM_WORLD_SIZE: '4' }, /^2 .*mpirun starts oomtune 4 times/],
      [{ WORLD_SIZE: '2', TORCHELASTIC_RUN_ID: 'none' }, /^2 .*torchrun starts oomtune 2 times/],
      [{ WORLD_SIZE: '2' }, null],
      [
        { SLURM_STEP_NUM_TASKS: '2', PMI_SIZE: '2' },
        /^2 .*srun starts oomtune 2 times.*srun … env -u SLURM_STEP_NUM_TASKS -u PMI_SIZE oomtune run …/s,
      ],
    ];
    for (const [env, says] of ranks) expect(await run(['--', 'echo', 'started'], env)).toMatch(says ?? /^0 started/);
    expect(await run(['--no-tune', '--', 'echo', 'started'], { SLURM_STEP_NUM_TASKS: '2' })).toMatch(/^0 started/);
    // A shell by `srun --pty` has a terminal; what another srun starts in that shell has its variable only.
    const env = { ...oomtune.env, SLURM_STEP_NUM_TASKS: '2', SLURM_PTY_PORT: '1' };
    const command = [PROGRAM, 'run', '--device', 'cpu', '--', 'echo', 'started'];
    const apart = spawnSync('setsid', ['--wait', ...command], { env, encoding: 'utf8' });
    expect([apart.status, apart.stderr]).toEqual([2, expect.stringContaining('srun starts oomtune 2 times')]);
    const terminal = spawnSync(
      'python3',
      ['-c', 'import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)', ...command],
      { env, encoding: 'utf8' },
    );
    expect([terminal.status, terminal.stdout]).toEqual([0, expect.stringContaining('started')]);
    const machines = ['--', srun, 'python3', 'train.py'];
    expect(await run(machines, { SLURM_NNODES: '2' })).toMatch(/^2 .*processes on 2 machines.*--no-tune/s);
    expect(await run(['--no-tune', ...machines], { SLURM_NNODES: '2' })).toMatch(/^0 started/);
    const torchrun = join(oomtune.home, 'torchrun');
    symlinkSync(srun, torchrun);
    const two = ['--', torchrun, '--nnodes=2', '--node-rank=0', 'train.py'];
    expect(await run(two, {})).toMatch(/^2 .*processes on 2 machines.*--no-tune/s);
    expect(await run(['--no-tune', ...two], {})).toMatch(/^0 started/);
    const told: [string[], NodeJS.ProcessEnv, RegExp][] = [
      [two, {}, /2 machines \(--nnodes\).*`--nnodes 1`.*{micro_batch}/s],
      [['--', torchrun, 'train.py'], { PET_NNODES: '3' }, /3 machines \(PET_NNODES\).*`--nnodes 1`/s],
      [machines, { SLURM_NNODES: '2' }, /2 machines \(SLURM_NNODES\).*`--nodes 1`/s],
      [['--', 'deepspeed', '-i', 'a:0@b:0', 'train.py'], {}, /2 machines \(-i\).*`-i HOST`/s],
      [['--', 'deepspeed', '-H', 'hosts', 'train.py'], {}, /2 machines \(hosts\).*`--num_nodes 1`/s],
    ];
    writeFileSync(join(oomtune.home, 'hosts'), 'a slots=1\nb slots=1\n');
    symlinkSync(srun, join(oomtune.home, 'deepspeed'));
    const place = { PATH: `${oomtune.home}:${oomtune.env.PATH}` };
    for (const [words, env, says] of told)
      expect(await run(['--cwd', oomtune.home, ...words], { ...place, ...env })).toMatch(says);
    rmSync(torchrun);
    expect(await run(['--', srun, '-N1', 'true'], { SLURM_NNODES: '2' })).toMatch(/^0 started/);
    const one = ['--', srun, '--ntasks=1', 'torchrun', '--nproc-per-node=4', 'train.py'];
    expect(await run(one, { SLURM_NNODES: '2' })).not.toContain('machines');
    rmSync(srun);
  });

  it('a report that can no longer be written is told as that', async () => {
    const folder = join(oomtune.home, 'short-lived');
    mkdirSync(folder);
    const args = ['--no-tune', '--device', 'cpu', '--report', join(folder, 'report')];
    const { code, stderr } = await oomtune.call(['run', ...args, '--', 'rmdir', folder]);
    expect([code, stderr]).toEqual([
      5,
      expect.stringMatching(/short-lived\/report cannot be written.*\(OOMTUNE_OUTPUT_FAILED\)/s),
    ]);
  });

  it('a report that cannot be written is told before the job starts', async () => {
    const folder = join(oomtune.home, 'work');
    mkdirSync(folder);
    writeFileSync(join(folder, 'taken'), '');
    const { code } = await oomtune.call([
      'run',
      '--no-tune',
      '--device',
      'cpu',
      '--report',
      join(folder, 'taken', 'report'),
      '--',
      'touch',
      join(folder, 'started'),
    ]);
    expect(code).toBe(2);
    expect(readdirSync(folder)).toEqual(['taken']);
  });
});
