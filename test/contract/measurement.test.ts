import { expect, it } from 'vitest';
import { hookMessage, type Measured } from '../../src/contract/hook.js';
import { jobRecord } from '../../src/contract/job.js';
import { configOf, rungName, sameRung, shown } from '../../src/contract/rung.js';
import { observeFit } from '../../src/worker/search/observe.js';
import { worstRank } from '../../src/worker/search/worst-rank.js';

const figures = {
  ...{ total_bytes: 100, forward_backward_bytes: 80, optimizer_bytes: 50, reserved_bytes: 90, resident_bytes: 40 },
  ...{ parameter_bytes: 10, gradient_bytes: 10, optimizer_state_bytes: 20, needed_bytes: 70, pieces_bytes: 6 },
};
const told = {
  ...{ steps: 3, alloc_retries: 2, growth_bytes_per_step: -512, short: true, kept_by: 'losses, train.py:7' },
};
const message = { t: 'measured', micro_batch: 8, accumulation: 1, step_s: [0.2, 0.1], ...figures, ...told };
const place = { launch: 1, fresh: true, asked: Date.now() };
const probe = {
  ...{
    rung: {
      ...{ amp: 'bf16' as const, checkpointing: true, checkpointed_blocks: '', offload: true, chunked_loss: false },
      ...{
        offloaded_part: '',
        activation_memory_budget: '',
        optimizer_on_host: false,
        optimizer_8bit: false,
        bf16_weights: false,
      },
    },
    micro_batch: 8,
    accumulation: 1,
    steps: 3,
  },
  ...{ rest_steps: 0, growth_bytes: 1, growth_steps: 0, fresh: true, purpose: 'climb' as const, why: '' },
};

it('a measurement keeps its names from the hook to the record in Redis', () => {
  const measured = worstRank([hookMessage.parse(message) as Measured]);
  const observation = observeFit(probe, place, measured, true);
  const [read] = jobRecord.shape.journal.parse(JSON.parse(JSON.stringify([observation])));
  expect(read).toEqual(observation);
  expect(read?.peaks).toEqual(figures);
  expect(read).toMatchObject(told);
});

it('a rung knows all of its knobs: two that differ in one are two, and each has its name', () => {
  expect(sameRung({ amp: 'off', checkpointing: true }, { amp: 'off', checkpointing: true, offload: false })).toBe(true);
  expect(sameRung(probe.rung, { ...probe.rung, offload: false })).toBe(false);
  expect(rungName(probe.rung)).toBe('bf16 + checkpointing + offload');
  expect(rungName({ amp: 'off', checkpointing: false })).toBe('as it stands');
  const some = { ...probe.rung, checkpointed_blocks: '0-3,6/12' };
  expect(sameRung(probe.rung, some)).toBe(false);
  expect(rungName(some)).toBe('bf16 + checkpointing of 5/12 blocks + offload');
  expect(rungName({ ...probe.rung, offload: false, optimizer_on_host: true })).toBe(
    'bf16 + checkpointing + optimizer on host',
  );
  expect(rungName({ amp: 'off', checkpointing: false, activation_memory_budget: '0.5' })).toBe(
    'activation memory budget 0.5',
  );
});

it('a document tells of offload only where it is on', () => {
  const size = { micro_batch: 4, accumulation: 2, world_size: 1 };
  const plain = configOf({ amp: 'off', checkpointing: true }, size);
  expect(JSON.stringify(shown(plain))).toBe(
    '{"micro_batch":4,"accumulation":2,"world_size":1,"effective_batch":8,"amp":"off","checkpointing":true}',
  );
  expect(shown(configOf(probe.rung, size))).toMatchObject({ checkpointing: true, offload: true });
});
