import { trainsAsItIs } from './framework.js';

const TRL =
  '--model_name_or_path model --dataset_name rows --output_dir out --use_cpu --bf16 False --num_train_epochs 1 --optim sgd --learning_rate 0.05 --save_strategy no --report_to none --per_device_train_batch_size 48';

trainsAsItIs(
  'TRL',
  ['trl.trainer.sft_trainer', 'peft'],
  [
    { script: 'trl_sft', own: 24, budget: '150MiB', differ: true },
    { script: 'trl_dpo', own: 24, budget: '110MiB' },
    {
      script: 'trl_console',
      console: 'trl',
      args: `sft ${TRL}`.split(' '),
      own: 48,
      budget: '150MiB',
      flag: '--per_device_train_batch_size ',
    },
  ],
);
