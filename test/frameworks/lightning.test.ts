import { trainsAsItIs } from './framework.js';

const CLI =
  '--trainer.accelerator cpu --trainer.max_epochs 2 --trainer.logger false --trainer.enable_checkpointing false';

trainsAsItIs(
  'Lightning',
  ['lightning'],
  [
    { script: 'lightning_datamodule', own: 192, budget: '60MiB' },
    { script: 'lightning_manual', own: 4096, budget: '55MiB' },
    {
      script: 'lightning_cli',
      args: `fit ${CLI} --data.batch_size 4096`.split(' '),
      own: 4096,
      budget: '60MiB',
      flag: '--data.batch_size ',
    },
  ],
);
