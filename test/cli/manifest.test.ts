import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { z } from 'zod';
import { runWords } from '../../src/cli/cluster/run-words.js';
import { toJobOptions } from '../../src/cli/job-options.js';
import { createProgram } from '../../src/cli/program.js';
import { openStore } from '../../src/store/index.js';
import { job, options, recommendation } from '../store/samples.js';
import { Oomtune } from './oomtune.js';

/** Kubernetes' own schemas of batch/v1 Job, strict: no field that they do not have. Their sources stand in the files. */
const SCHEMAS = ['1.31.0', '1.37.0'].map((version) => {
  const file = join(import.meta.dirname, '..', 'fixtures', 'schemas', `kubernetes-job-v${version}.json`);
  return { version, schema: z.fromJSONSchema(JSON.parse(readFileSync(file, 'utf8'))) };
});

interface Container {
  name: string;
  image: string;
  command: string[];
  env: { name: string; value?: string; valueFrom?: unknown }[];
  resources: { limits: Record<string, string | number> };
}
interface Job {
  metadata: { name: string; labels: Record<string, string> };
  spec: {
    suspend?: boolean;
    backoffLimit: number;
    podFailurePolicy: { rules: { action: string; onExitCodes?: { operator: string; values: number[] } }[] };
    template: {
      metadata: { labels: Record<string, string>; annotations?: Record<string, string> };
      spec: { schedulerName?: string; restartPolicy: string; containers: [Container] };
    };
  };
}

const oomtune = new Oomtune();
const recorded = recommendation({ expandable_segments: true });
const onCpu = recommendation({
  key: 'mlp:cpu:300m:1x',
  name: 'mlp',
  gpu_model: 'cpu',
  budget_bytes: 300 * 1024 ** 2,
  accumulation: 1,
  micro_batch: 64,
  effective_batch: 64,
});
const several = recommendation({ key: 'gpt:nvidia-h200:24g:4x', name: 'gpt', world_size: 4, effective_batch: 4384 });
const submitted = job({ name: 'resnet50', key: recorded.key, command: ['python', 'train.py', '--epochs', '3'] });

async function manifest(...args: string[]): Promise<Job> {
  const { code, stdout, stderr } = await oomtune.call(['manifest', '--image', 'registry/train:1', ...args]);
  expect(code, stderr).toBe(0);
  const read = parse(stdout);
  for (const { version, schema } of SCHEMAS) {
    const checked = schema.safeParse(read);
    expect(checked.success, `Kubernetes ${version}: ${checked.success ? '' : z.prettifyError(checked.error)}`).toBe(
      true,
    );
  }
  return read as Job;
}
const containerOf = ({ spec }: Job): Container => spec.template.spec.containers[0];
const variable = (made: Job, name: string) => containerOf(made).env.find((one) => one.name === name);

beforeAll(async () => {
  const url = (await oomtune.call(['redis', 'url'])).stdout.trim();
  const store = await openStore({ url });
  for (const one of [recorded, onCpu, several]) await store.recommendations.put(one, null);
  await store.jobs.create({
    ...submitted,
    options: options({ device: null, budget: '24GiB', tune: true, retries: 1 }),
  });
  await store.close();
});
afterAll(() => oomtune.close());

describe('oomtune manifest', () => {
  it("is held to schemas that refuse what is not Kubernetes'", () => {
    for (const { schema } of SCHEMAS) {
      const minimal = {
        apiVersion: 'batch/v1',
        kind: 'Job',
        spec: { template: { spec: { containers: [{ name: 'a' }] } } },
      };
      expect(schema.safeParse(minimal).success).toBe(true);
      expect(schema.safeParse({ ...minimal, spec: { ...minimal.spec, podFailurePolicies: {} } }).success).toBe(false);
      expect(schema.safeParse({ ...minimal, spec: { ...minimal.spec, backoffLimit: 'two' } }).success).toBe(false);
    }
  });

  it('runs a job at its recorded size, with Redis from a secret', async () => {
    const made = await manifest(submitted.job);
    const { command, env, resources, image } = containerOf(made);
    expect(image).toBe('registry/train:1');
    const words = command.join(' ');
    expect(words).toMatch(/^oomtune run --requeue --name resnet50 .*-- python train\.py --epochs 3$/);
    expect(words).toContain(' --budget 24GiB ');
    expect(env).toContainEqual({ name: 'OOMTUNE_MICRO_BATCH', value: '548' });
    expect(env).toContainEqual({ name: 'OOMTUNE_ACCUMULATION', value: '2' });
    expect(variable(made, 'OOMTUNE_REDIS_URL')).toEqual({
      name: 'OOMTUNE_REDIS_URL',
      valueFrom: { secretKeyRef: { name: 'oomtune', key: 'redis-url' } },
    });
    expect(resources.limits).toEqual({ 'nvidia.com/gpu': 1 });
    expect(made.spec.backoffLimit).toBe(1);
    expect(
      variable(await manifest('--redis-secret', 'other/url', submitted.job), 'OOMTUNE_REDIS_URL')?.valueFrom,
    ).toEqual({
      secretKeyRef: { name: 'other', key: 'url' },
    });
    expect(variable(await manifest('--redis-secret', 'none', submitted.job), 'OOMTUNE_REDIS_URL')).toBeUndefined();
  });

  it('ends the job at once for what another pod would not mend, by rules that the API server takes', async () => {
    const made = await manifest('--name', 'resnet50', '--', 'python', 'train.py');
    expect(made.spec.template.spec.restartPolicy).toBe('Never'); // a policy is refused with any other
    const rules = made.spec.podFailurePolicy.rules;
    const actionOf = (exit: number): string =>
      rules.find(({ onExitCodes: on }) => on && (on.operator === 'In') === on.values.includes(exit))?.action ?? 'none';
    expect([2, 3, 4, 1, 70].map(actionOf)).toEqual(Array(5).fill('FailJob'));
    expect([5, 75, 137].map(actionOf)).toEqual(Array(3).fill('Count'));
    for (const { onExitCodes } of rules) {
      const values = onExitCodes?.values ?? [];
      expect(values).toEqual([...new Set(values)].sort((a, b) => a - b)); // ordered, and 0 never among them
      expect(values).not.toContain(0);
    }
  });

  it('asks for the memory in the form of each that shares out GPUs', async () => {
    const of = (...more: string[]) => manifest('--name', 'gpt', ...more, '--', 'python', 'train.py');
    const whole = await of();
    expect(containerOf(whole).resources.limits).toEqual({ 'nvidia.com/gpu': 4 });
    expect(containerOf(whole).command.join(' ')).toContain('--gpus 4');
    const hami = await of('--limit', 'hami');
    expect(containerOf(hami).resources.limits).toEqual({ 'nvidia.com/gpu': 4, 'nvidia.com/gpumem': 24576 });
    const kai = await of('--limit', 'kai', '--queue', 'team');
    expect(kai.spec.template.metadata).toMatchObject({
      annotations: { 'gpu-memory': '24576', 'gpu-fraction-num-devices': '4' },
      labels: { 'kai.scheduler/queue': 'team' },
    });
    expect(kai.spec.template.spec.schedulerName).toBe('kai-scheduler');
    expect(containerOf(kai).resources.limits).toEqual({});
    const runtime = await of('--limit', 'runtime');
    expect(variable(runtime, 'NVIDIA_GPU_MEMORY_LIMIT')?.value).toBe('24576');
    expect(variable(runtime, 'NVIDIA_GPU_MEMORY_REQUEST')?.value).toBe('24576');
    const cpu = await manifest('--name', 'mlp', '--', 'python', 'train.py');
    expect(containerOf(cpu).resources.limits).toEqual({ memory: '1324Mi' });
  });

  it("goes through Kueue's queue, suspended until it is admitted", async () => {
    const made = await manifest('--queue', 'team', '--name', 'resnet50', '--', 'python', 'train.py');
    expect(made.metadata.labels['kueue.x-k8s.io/queue-name']).toBe('team');
    expect(made.spec.suspend).toBe(true);
    expect(made.spec.template.metadata.labels).not.toHaveProperty('kueue.x-k8s.io/queue-name');
  });

  it('hands words on to the letter, whatever Kubernetes and YAML would make of them', async () => {
    const words = ['$(HOME)', '$$', '"yes"', "it's", 'a\nb', ': - #', 'no', '0x1f', 'ü {{x}}'];
    const made = await manifest('--name', "a'b$(x)", '--env', 'A=$(B)\n"c"', '--', 'python', 'train.py', ...words);
    const expanded = (text: string) => text.replaceAll('$$', '$'); // as the kubelet does
    expect(containerOf(made).command.slice(-words.length).map(expanded)).toEqual(words);
    expect(expanded(variable(made, 'A')?.value ?? '')).toBe('$(B)\n"c"');
    expect(made.metadata.name).toMatch(/^[a-z0-9]([a-z0-9-]*[a-z0-9])?$/);
  });

  it('says what is wrong', async () => {
    const of = async (...args: string[]) => {
      const { code, stderr } = await oomtune.call(['manifest', ...args]);
      return `${code} ${stderr.split('\n')[0]}`;
    };
    expect(await of('--', 'python', 'train.py')).toMatch(/^2 .*needs the image/);
    expect(await of('--image', 'i')).toMatch(/^2 .*nothing to write a manifest for/);
    expect(await of('--image', 'i', submitted.job, '--', 'python')).toMatch(/^2 .*not both/);
    expect(await of('--image', 'i', 'nobody')).toMatch(/^6 .*no job "nobody"/);
    expect(await of('--image', 'i', '--env', 'TOKEN', '--', 'python')).toMatch(/^2 .*NAME=VALUE/);
    expect(await of('--image', 'i', '--limit', 'mig', '--', 'python')).toMatch(/^2 /);
    expect(await of('--image', 'i', '--queue', 'a b', '--', 'python')).toMatch(/^2 .*--queue/);
    expect(await of('--image', 'i', '--redis-secret', 'A B', '--', 'python')).toMatch(/^2 .*--redis-secret/);
    const { code, stderr } = await oomtune.call([
      'manifest',
      '--image',
      'i',
      '--limit',
      'hami',
      '--',
      'python',
      'new.py',
    ]);
    expect(code).toBe(2);
    expect(stderr).toContain('How much GPU memory the job needs is not known.');
  });
});

describe('oomtune recommend --format', () => {
  const format = async (name: string, how: string, ...more: string[]) => {
    const { code, stdout, stderr } = await oomtune.call(['recommend', name, '--format', how, ...more]);
    expect(code, stderr).toBe(0);
    return stdout;
  };

  it('env: lines that a shell reads', async () => {
    const text = await format('resnet50', 'env');
    const script = `set -a; eval "$1"; env`;
    const read = execFileSync('sh', ['-c', script, 'sh', text], { encoding: 'utf8', env: {} });
    expect(read).toContain('OOMTUNE_MICRO_BATCH=548\n');
    expect(read).toContain('OOMTUNE_AMP=bf16\n');
    expect(read).toContain('OOMTUNE_EFFECTIVE_BATCH=1096\n');
  });

  it('json: all of it, and the command that runs at it', async () => {
    expect(JSON.parse(await format('gpt', 'json'))).toMatchObject({
      key: 'gpt:nvidia-h200:24g:4x',
      gpus: 4,
      budget_bytes: 25769803776,
      config: { micro_batch: 548, amp: 'bf16' },
      run: ['oomtune', 'run', '--name', 'gpt', '--budget', '24576MiB', '--gpus', '4'],
    });
  });

  it('slurm: a batch script', async () => {
    const text = await format('gpt', 'slurm', '--', 'python', 'train.py', "it's");
    execFileSync('bash', ['-n'], { input: text });
    expect(text).toContain('#SBATCH --gpus-per-node=4\n');
    expect(text).toContain("oomtune run --name gpt --budget 24576MiB --gpus 4 -- python train.py 'it'\\''s'");
    expect(await format('mlp', 'slurm')).toContain('#SBATCH --mem=1324M\n');
  });

  it.each(['k8s', 'hami', 'kai'])("%s: a part of a pod template, by Kubernetes' schema", async (how) => {
    const template = parse(await format('resnet50', how));
    for (const { schema } of SCHEMAS) {
      expect(schema.safeParse({ apiVersion: 'batch/v1', kind: 'Job', spec: { template } }).success).toBe(true);
    }
    expect(JSON.stringify(template)).toContain(
      { k8s: '"nvidia.com/gpu":1', hami: '"nvidia.com/gpumem":24576', kai: '"gpu-memory":"24576"' }[how],
    );
  });

  it('refuses what it cannot write', async () => {
    const of = async (...args: string[]) => (await oomtune.call(['recommend', ...args])).code;
    expect(await of('--format', 'env')).toBe(2);
    expect(await of('resnet50', '--format', 'toml')).toBe(2);
    expect(await of('resnet50', '--format', 'env', '--apply', '--', 'python')).toBe(2);
    expect(await of('nobody', '--format', 'env')).toBe(6);
  });
});

describe('the words of `oomtune run` for a cluster', () => {
  it('are understood as the options that they were made from', async () => {
    const all = {
      name: 'a',
      device: 'cuda',
      budget: '24GiB',
      gpus: '2',
      exclusive: true,
      effectiveBatch: '64',
      minBatch: '2',
      maxBatch: '32',
      amp: 'bf16',
      checkpointing: 'on',
      accumulation: 'off',
      cut: 'loader',
      objective: 'throughput',
      headroom: '5',
      preset: 'none',
      steps: '4',
      fork: false,
      timeout: '60',
      time: '1h',
      maxLaunches: '9',
      resumeArg: '--resume',
      retries: '7',
    };
    for (const given of [all, {}, { ...all, amp: 'auto', exact: true, tune: false, restart: true }]) {
      const wanted = toJobOptions(given, ['true']);
      let read: unknown;
      const program = createProgram(
        async (invocation) => {
          read = toJobOptions(invocation.options, ['true']);
        },
        ['true'],
      );
      await program.parseAsync(['run', ...runWords(wanted)], { from: 'user' });
      expect(read).toEqual(wanted);
    }
  });
});
