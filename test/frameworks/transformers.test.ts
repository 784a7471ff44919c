import { trainsAsItIs } from './framework.js';

const TRAINER = '--output_dir out --use_cpu --num_train_epochs 1 --optim sgd --learning_rate 0.05 --save_strategy no';

trainsAsItIs(
  "transformers' Trainer",
  ['transformers.trainer'],
  [
    {
      script: 'hf_trainer',
      args: `${TRAINER} --report_to none --per_device_train_batch_size 16`.split(' '),
      own: 16,
      budget: '30MiB',
      flag: '--per_device_train_batch_size ',
    },
    { script: 'hf_in_script', own: 32, accumulation: 2, budget: '40MiB' },
    { script: 'hf_packed', own: 128, budget: '80MiB' },
    { script: 'hf_seq2seq', own: 64, budget: '40MiB' },
    { script: 'hf_contrast', own: 64, budget: '40MiB' },
    { script: 'hf_classifier', own: 32, budget: '20MiB' },
    {
      script: 'hf_flags',
      args: `${TRAINER} --report_to none --per_device_train_batch_size 32`.split(' '),
      own: 32,
      budget: '20MiB',
      flag: '--per_device_train_batch_size ',
    },
  ],
);
