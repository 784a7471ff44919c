import type { JobRecord } from '../../src/contract/job.js';
import type { Device } from '../../src/contract/launch.js';
import { DEFAULT_OPTIONS, type JobOptions } from '../../src/contract/options.js';
import type { Recommendation } from '../../src/contract/recommendation.js';
import { newJobId } from '../../src/store/index.js';

export const options = (changes: Partial<JobOptions> = {}): JobOptions => ({
  ...DEFAULT_OPTIONS,
  device: 'cpu',
  budget: '200MiB',
  preset: 'none',
  cwd: '/tmp',
  tune: false,
  retries: 0,
  ...changes,
});

export const job = (changes: Partial<JobRecord> = {}): JobRecord => ({
  schema: 1,
  job: newJobId(),
  name: 'train',
  owner: 'alice',
  state: 'queued',
  reason: 'waits for a daemon',
  failure: null,
  command: ['python', 'train.py'],
  options: options(),
  host: null,
  devices: [],
  config: null,
  key: null,
  launches: [],
  journal: [],
  submitted_at: new Date().toISOString(),
  started_at: null,
  ended_at: null,
  exit_code: null,
  ...changes,
});

export const recommendation = (changes: Partial<Recommendation> = {}): Recommendation => ({
  schema: 1,
  key: 'resnet50:nvidia-h200:24g:1x',
  name: 'resnet50',
  gpu_model: 'NVIDIA H200',
  budget_bytes: 25769803776,
  world_size: 1,
  micro_batch: 548,
  accumulation: 2,
  effective_batch: 1096,
  amp: 'bf16',
  checkpointing: false,
  max_micro_batch: 564,
  known_bad_micro_batch: 565,
  peak_bytes: 25600000000,
  samples_per_s: 2400.5,
  verified_at: '2026-01-02T03:04:05.678Z',
  status: 'verified',
  command_digest: '0123abcd',
  torch: '2.8.0',
  driver: null,
  probes: [
    {
      launch: 1,
      micro_batch: 1,
      amp: 'bf16',
      checkpointing: false,
      steps: 3,
      outcome: 'fit',
      peak_bytes: 417333248,
      step_s: 0.031,
      evidence: null,
    },
  ],
  ...changes,
});

export const GIB = 1024 ** 3;

/** A GPU of 80 GiB; `foreign`: bytes that a stranger holds. */
export const gpu = (index: number, foreign = 0): Device => ({
  id: `cuda:${index}`,
  uuid: `GPU-${index}`,
  total_bytes: 80 * GIB,
  used_bytes: foreign,
  processes: foreign === 0 ? [] : [{ pid: 4242, name: 'blender', used_bytes: foreign, ours: false }],
});
