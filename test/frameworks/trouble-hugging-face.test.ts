import { tellsTroubleOf } from './trouble.js';

const TRAINER =
  '--output_dir out --use_cpu --max_steps 6 --save_strategy steps --save_steps 3 --eval_strategy steps --eval_steps 3 --report_to none';

// hf_in_script and `trl sft` have the same Trainer and SFTTrainer do all of it.
tellsTroubleOf([
  { of: "transformers' Trainer", script: 'hf_trainer', args: TRAINER },
  { of: 'Seq2SeqTrainer, which generates in its evaluation', script: 'hf_seq2seq', batch: 16 },
  // It evaluates nothing, and saves as the Trainer does; its workers read a stream.
  { of: 'the Trainer on an IterableDataset', script: 'hf_packed', only: ['worker'] },
  { of: "TRL's SFTTrainer with a LoRA adapter", script: 'trl_sft' },
  { of: "TRL's DPOTrainer", script: 'trl_dpo' },
]);
