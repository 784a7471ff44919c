import { tellsTroubleOf } from './trouble.js';

const LAUNCH =
  'launch --cpu --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no accelerate_loop.py';
const RANKS = '--standalone --nproc-per-node 2 two_ranks.py';

tellsTroubleOf([
  { of: 'a loop with accelerate', script: 'accelerate_loop' },
  { of: 'one under its launcher', script: 'accelerate_launch', console: 'accelerate', args: LAUNCH },
  // They evaluate nothing, and what is whole of FSDP's weights is gathered before it is saved.
  { of: 'two ranks', script: 'ddp', console: 'torchrun', args: `${RANKS} ddp`, batch: 128, only: ['saving', 'worker'] },
  { of: 'two ranks of FSDP', script: 'fsdp', console: 'torchrun', args: `${RANKS} fsdp`, only: ['saving'] },
]);
