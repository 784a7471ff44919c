import { expect, it } from 'vitest';
import { diagnose } from '../../src/worker/diagnosis/index.js';

const SITE = '/venv/lib/python3.11/site-packages';
const MODULE = `${SITE}/torch/nn/modules/module.py:1787 _call_impl`;

/** What is told of an error out of memory in these frames, outermost first: `FILE:LINE FUNCTION`. */
function told(...frames: string[]) {
  const lines = frames.map((frame) => frame.replace(/^(.*):(\d+) (.*)$/, '  File "$1", line $2, in $3'));
  const oom = 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.';
  const log = ['Traceback (most recent call last):', ...lines, oom].join('\n');
  return diagnose({ log: [Buffer.from(log)], exitCode: 1 });
}

it('a forward pass that a model calls `predict` is no evaluation in training, and one in a step of an evaluation is', async () => {
  const inside = [
    MODULE,
    `${SITE}/ultralytics/nn/tasks.py:180 predict`,
    MODULE,
    `${SITE}/torch/nn/modules/conv.py:9 forward`,
  ];
  const trainer = `${SITE}/ultralytics/engine/trainer.py`;
  expect(await told(`${trainer}:530 _do_train`, ...inside)).toMatchObject({ reason: 'batch', phase: 'train' });
  expect(await told(`${trainer}:671 validate`, ...inside)).toMatchObject({ reason: 'eval', phase: 'eval' });
  // Lightning's strategies call the steps of a model by way of the model.
  const strategy = `${SITE}/lightning/pytorch/strategies/strategy.py:641 wrapped_forward`;
  const step = await told(`${SITE}/lightning/a.py:1 fit`, MODULE, strategy, '/job/model.py:5 validation_step', MODULE);
  expect(step).toMatchObject({ reason: 'eval', phase: 'eval' });
});

it('whole weights that are gathered before they are saved are of the saving', async () => {
  const gathering = `${SITE}/torch/distributed/checkpoint/state_dict.py`;
  const failure = await told(
    '/job/train.py:34 <module>',
    `${gathering}:1221 get_model_state_dict`,
    `${gathering}:475 _gather`,
  );
  expect(failure).toMatchObject({ reason: 'save', phase: 'save' });
});

it.each(['decorate_context', 'no_grad', 'inference_mode'])(
  "an evaluation under torch's decorator, a frame of the name %s, keeps no graph",
  async (name) => {
    const decorator = `${SITE}/torch/utils/_contextlib.py:158 ${name}`;
    const failure = await told('/job/train.py:34 <module>', decorator, '/job/train.py:9 evaluate');
    expect(failure.reason).toBe('eval');
    expect(failure.cause).toContain('It keeps no graph');
  },
);
