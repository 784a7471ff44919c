/** minGPT, nanoGPT and makemore. */
const MINGPT = {
  repository: 'karpathy/minGPT',
  folders: ['mingpt', 'projects'],
  path: ['.'],
  size: '--trainer.batch_size=',
};

export const KARPATHY = [
  {
    ...MINGPT,
    name: 'minGPT adder',
    folder: 'projects/adder',
    command: 'adder.py --trainer.max_iters=30 --trainer.num_workers=0',
    samples: 9500,
    cpu: { budget: '120MiB', own: 512 },
    cuda: { budget: '4GiB', own: 8192 },
  },
  {
    ...MINGPT,
    name: 'minGPT chargpt',
    folder: 'projects/chargpt',
    command: 'chargpt.py --trainer.max_iters=30 --trainer.num_workers=0',
    links: { 'input.txt': 'corpus 4000#input.txt' },
    cpu: { budget: '300MiB', own: 16, args: '--model.model_type=gpt-micro' },
    cuda: { budget: '8GiB', own: 256 },
  },
  {
    name: 'nanoGPT train.py',
    repository: 'karpathy/nanoGPT',
    command: 'train.py config/train_shakespeare_char.py --compile=False --max_iters=30 --eval_iters=1 --dropout=0.0',
    links: { 'data/shakespeare_char': 'tokens 2000000 65' },
    size: '--batch_size=',
    cpu: { budget: '300MiB', own: 32, args: '--device=cpu --n_layer=2 --n_embd=96 --block_size=128' },
    cuda: { budget: '8GiB', own: 256 },
  },
  ...['transformer', 'rnn', 'mlp'].map((type) => ({
    name: `makemore ${type}`,
    repository: 'karpathy/makemore',
    command: `makemore.py -i {data:names+20000}/names.txt --type ${type} --max-steps 30 -n 0`,
    samples: 19000,
    size: '--batch-size',
    logs: ['torch.utils.tensorboard'],
    // Of 150 MiB the 1.3 MiB that oomtune's hook holds in the process would be half of the tolerance.
    cpu: { budget: type === 'mlp' ? '300MiB' : '150MiB', own: 512 },
    cuda: { budget: '4GiB', own: 8192, args: '--device cuda' },
  })),
];
