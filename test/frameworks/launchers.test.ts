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
      most: 512,
    },
    {
      script: 'torchrun',
      console: 'torchrun',
      args: '--standalone --nproc-per-node 1 accelerate_loop.py'.split(' '),
      own: 2048,
      accumulation: 2,
      most: 512,
    },
  ],
);
