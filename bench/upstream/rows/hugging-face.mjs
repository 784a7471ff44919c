/**
 * The scripts of transformers, from a fork that keeps them as they are in 4.57.5 (no snapshot of the original is small enough to
 * fetch), accelerate's example and TRL's scripts. They need `datasets`.
 */
const script = (name, path, command, more) => ({
  name: `transformers ${name}`,
  repository: 'PerforatedAI/PerforatedAI-Transformers',
  folders: [`examples/pytorch/${path}`],
  folder: `examples/pytorch/${path}`,
  command,
  logs: ['evaluate'],
  size: '--per_device_train_batch_size',
  ...more,
});
const TRAINER =
  '--do_train --output_dir out --max_steps 12 --logging_steps 1 --save_strategy no --report_to none --seed 1';
/** TRL trains in bf16 where nothing is said: on the CPU oneDNN keeps some 8 MiB for each length of a sequence that it meets. */
const IN_FLOAT32 = '--use_cpu --bf16 False';
const PLACES = { cpu: { budget: '150MiB', own: 32, args: '--use_cpu' }, cuda: { budget: '8GiB', own: 128 } };

export const HUGGING_FACE = [
  script(
    'run_clm',
    'language-modeling',
    `run_clm.py --config_name {data:tokenizer+gpt2{scale}} --tokenizer_name {data:tokenizer+gpt2{scale}} --train_file {data:rows+text+4000}/train.json --block_size 64 ${TRAINER}`,
    PLACES,
  ),
  script(
    'run_mlm',
    'language-modeling',
    `run_mlm.py --config_name {data:tokenizer+bert{scale}} --tokenizer_name {data:tokenizer+bert{scale}} --train_file {data:rows+text+4000}/train.json --max_seq_length 64 ${TRAINER}`,
    PLACES,
  ),
  script(
    'run_glue',
    'text-classification',
    `run_glue.py --model_name_or_path {data:model+bert{scale}} --train_file {data:rows+glue}/train.json --validation_file {data:rows+glue}/validation.json --max_seq_length 64 ${TRAINER}`,
    PLACES,
  ),
  script(
    'run_ner',
    'token-classification',
    `run_ner.py --model_name_or_path {data:model+bert{scale}+AutoModelForTokenClassification} --train_file {data:rows+tags}/train.json ${TRAINER}`,
    PLACES,
  ),
  script(
    'run_swag',
    'multiple-choice',
    `run_swag.py --model_name_or_path {data:model+bert{scale}+AutoModelForMultipleChoice} --train_file {data:rows+swag}/train.json --validation_file {data:rows+swag}/validation.json --max_seq_length 64 ${TRAINER}`,
    PLACES,
  ),
  script(
    'run_translation',
    'translation',
    `run_translation.py --model_name_or_path {data:model+t5{scale}+AutoModelForSeq2SeqLM} --train_file {data:rows+translation}/train.json --source_lang en --target_lang de --max_source_length 64 --max_target_length 64 ${TRAINER}`,
    { ...PLACES, logs: ['evaluate', 'sacrebleu'] },
  ),
  script(
    'run_mae',
    'image-pretraining',
    `run_mae.py --dataset_name {data:images+1024+256} --remove_unused_columns False --label_names pixel_values --dataloader_num_workers 4 ${TRAINER}`,
    {
      cuda: { budget: '8GiB', own: 64 },
    },
  ),
  script(
    'run_glue_no_trainer',
    'text-classification',
    'run_glue_no_trainer.py --model_name_or_path {data:model+bert{scale}} --train_file {data:rows+glue}/train.json --validation_file {data:rows+glue}/validation.json --max_length 64 --max_train_steps 12 --output_dir out --seed 1',
    { cpu: { budget: '150MiB', own: 32 }, cuda: { budget: '8GiB', own: 128 } },
  ),
  {
    name: 'accelerate nlp_example',
    repository: 'huggingface/accelerate',
    folders: ['examples/nlp_example.py'],
    folder: 'examples',
    command: 'nlp_example.py',
    links: { 'bert-base-cased': 'model bert{scale}', 'nyu-mll/glue': 'rows glue 2000' },
    logs: ['evaluate'],
    own: 16,
    cpu: { budget: '150MiB', args: '--cpu' },
    cuda: { budget: '8GiB' },
  },
  {
    name: 'TRL sft.py',
    repository: 'huggingface/trl',
    folder: 'trl/scripts',
    command: `sft.py --model_name_or_path {data:model+llama{scale}+AutoModelForCausalLM} --dataset_name {data:rows+prompt} --max_length 64 --output_dir out --max_steps 12 --logging_steps 1 --save_strategy no --report_to none --seed 1`,
    size: '--per_device_train_batch_size',
    lengths: true,
    cpu: { budget: '200MiB', own: 32, args: IN_FLOAT32 },
    cuda: { budget: '12GiB', own: 128 },
  },
  {
    name: 'TRL dpo.py',
    repository: 'huggingface/trl',
    folder: 'trl/scripts',
    command: `dpo.py --model_name_or_path {data:model+llama{scale}+AutoModelForCausalLM} --dataset_name {data:rows+pairs} --max_length 64 --output_dir out --max_steps 12 --logging_steps 1 --save_strategy no --report_to none --seed 1`,
    size: '--per_device_train_batch_size',
    lengths: true,
    cpu: { budget: '200MiB', own: 16, args: IN_FLOAT32 },
    cuda: { budget: '16GiB', own: 64 },
  },
];
