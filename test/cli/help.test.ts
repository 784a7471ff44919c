import { afterAll, describe, expect, it } from 'vitest';
import { Oomtune } from './oomtune.js';

const VERBS = [
  'find-batch',
  'estimate',
  'run',
  'submit',
  'status',
  'top',
  'wait',
  'logs',
  'cancel',
  'retry',
  'hold',
  'release',
  'explain',
  'recommend',
  'manifest',
  'diagnose',
  'devices',
  'daemon',
  'redis',
  'doctor',
  'completion',
  'daemon start',
  'daemon stop',
  'daemon status',
  'daemon run',
  'redis url',
  'redis status',
  'redis stop',
];

const WORK_OPTIONS = [
  '--name',
  '--device',
  '--budget',
  '--gpus',
  '--effective-batch',
  '--min-batch',
  '--max-batch',
  '--amp',
  '--checkpointing',
  '--chunked-loss',
  '--accumulation',
  '--exact',
  '--objective',
  '--headroom',
  '--preset',
  '--steps',
  '--timeout',
  '--max-launches',
  '--env',
  '--env-file',
  '--cwd',
];

const SUBMIT_OPTIONS = ['--priority', '--after', '--share', '--gpu-model', '--host', '--resume-arg', '--retries'];

const oomtune = new Oomtune();
afterAll(() => oomtune.close());

describe('help', () => {
  it('names every verb', async () => {
    const { code, stdout, stderr } = await oomtune.call(['--help']);
    expect(code).toBe(0);
    expect(stderr).toBe('');
    for (const verb of VERBS.filter((name) => !name.includes(' ')))
      expect(stdout).toMatch(new RegExp(`^  ${verb} `, 'm'));
  });

  it.each(VERBS)('of %s goes to stdout and tells --json and --redis', async (verb) => {
    const { code, stdout, stderr } = await oomtune.call([...verb.split(' '), '--help']);
    expect(code).toBe(0);
    expect(stderr).toBe('');
    expect(stdout).toMatch(new RegExp(`^Usage: oomtune ${verb}`));
    expect(stdout).toContain('--json');
    expect(stdout).toContain('--redis');
  });

  it.each(['find-batch', 'run', 'submit'])('of %s lists the shared options', async (verb) => {
    const { stdout } = await oomtune.call([verb, '--help']);
    for (const option of WORK_OPTIONS) expect(stdout).toContain(`  ${option}`);
    for (const option of SUBMIT_OPTIONS) expect(stdout.includes(`  ${option} `)).toBe(verb === 'submit');
  });

  it('of the bare command is one screen by task, whose words all exist', async () => {
    const { code, stdout, stderr } = await oomtune.call([]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout.split('\n').length).toBeLessThan(20);
    expect(stdout).toContain('`oomtune --help` names all verbs');
    const verbs = [...stdout.matchAll(/ oomtune ([a-z-]+)/g)].map(([, verb]) => verb);
    expect(verbs.length).toBeGreaterThan(6);
    for (const verb of verbs) expect(VERBS).toContain(verb);
  });

  it('is no document: with --json a verb is asked for', async () => {
    const { code, stdout } = await oomtune.call(['--json']);
    expect(code).toBe(2);
    expect(JSON.parse(stdout).error.code).toBe('OOMTUNE_USAGE');
  });
});
