import { trainsAsItIs } from './framework.js';

trainsAsItIs(
  'accelerate and its launchers',
  ['accelerate'],
  [
    { script: 'accelerate_loop', own: 2048, accumulation: 2, budget: '120MiB' },
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
    ...['ddp', 'fsdp'].map((script) => ({
      script,
      console: 'torchrun',
      args: ['--standalone', '--nproc-per-node', '2', 'two_ranks.py', script],
      own: 512,
      ranks: 2,
      most: 128,
      unbounded: 'what two ranks hold at a time differs by MiB from start to start, and each size is a start of 20 s',
    })),
  ],
);
