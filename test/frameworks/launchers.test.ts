import { trainsAsItIs } from './framework.js';

trainsAsItIs(
  'accelerate and its launchers',
  ['accelerate'],
  [
    { script: 'accelerate_loop', own: 2048, accumulation: 2, budget: '120MiB' },
    {
      script: 'accelerate_flags',
      args: ['--train_batch_size', '2048'],
      own: 2048,
      budget: '120MiB',
      flag: '--train_batch_size ',
    },
    {
      script: 'accelerate_launch',
      console: 'accelerate',
      args: `launch --cpu --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no accelerate_loop.py`.split(
        ' ',
      ),
      own: 2048,
      accumulation: 2,
      budget: '120MiB',
    },
    ...[
      { script: 'ddp', args: ['two_ranks.py', 'ddp'], own: 512, most: 128 },
      { script: 'fsdp', args: ['two_ranks.py', 'fsdp'], own: 512, most: 128 },
      { script: 'trainer', args: ['hf_classifier.py'], own: 32, most: 8 },
    ].map(({ args, ...one }) => ({
      ...one,
      console: 'torchrun',
      args: ['--standalone', '--nproc-per-node', '2', ...args],
      ranks: 2,
      unbounded: 'what two ranks hold at a time differs by MiB from start to start, and each size is a start of 20 s',
    })),
  ],
);
