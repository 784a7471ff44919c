/** pytorch/examples. */
const row = (name, folder, command, more) => ({
  name: `examples: ${name}`,
  repository: 'pytorch/examples',
  folder,
  command,
  ...more,
});
const MNIST = { links: { '../data': 'mnist' }, size: '--batch-size', own: 1024 };

export const EXAMPLES = [
  row('mnist', 'mnist', 'main.py --epochs 1 --test-batch-size 64', {
    ...MNIST,
    cpu: { budget: '250MiB', own: 256 },
    cuda: { budget: '2GiB', own: 2048 },
  }),
  row('mnist_rnn', 'mnist_rnn', 'main.py --epochs 1 --test-batch-size 64', {
    ...MNIST,
    cpu: { budget: '150MiB' },
    cuda: { budget: '2GiB', args: '--accel', own: 8192 },
  }),
  row('vae', 'vae', 'main.py --epochs 1', {
    ...MNIST,
    cpu: { budget: '160MiB', own: 4096 },
    cuda: { budget: '1GiB', own: 8192 },
  }),
  row('siamese_network', 'siamese_network', 'main.py --epochs 1 --test-batch-size 64', {
    ...MNIST,
    cpu: { budget: '400MiB', own: 16 },
    cuda: { budget: '4GiB', own: 512 },
  }),
  row('dcgan', 'dcgan', 'main.py --dataset mnist --dataroot {data:mnist} --workers 0 --niter 1 --manualSeed 1', {
    size: '--batchSize',
    flagSizesMore: true, // the noise of the pictures that it saves
    cpu: { budget: '250MiB', own: 32, args: '--imageSize 64 --ngf 16 --ndf 16' },
    cuda: { budget: '4GiB', own: 512, args: '--accel' },
  }),
  row(
    'word_language_model LSTM',
    'word_language_model',
    // What an LSTM drops out inside of itself the watcher cannot take out.
    'main.py --data {data:corpus+50000} --epochs 1 --use-optimizer --lr 0.001 --dropout 0',
    {
      size: '--batch_size',
      cpu: { budget: '150MiB', own: 128 },
      cuda: { budget: '4GiB', own: 1024, args: '--accel' },
    },
  ),
  row(
    'word_language_model Transformer',
    'word_language_model',
    'main.py --data {data:corpus+50000} --epochs 1 --use-optimizer --lr 0.001 --model Transformer --dropout 0',
    {
      size: '--batch_size',
      cpu: { budget: '300MiB', own: 128 }, // what oomtune's hook holds, up to 1.3 MiB, is little of it
      cuda: { budget: '4GiB', own: 1024, args: '--accel' },
    },
  ),
  ...[
    ['resnet18', '700MiB', 8, '8GiB', 128],
    ['squeezenet1_1 --lr 0.01', '500MiB', 8, '4GiB', 128], // at the script's own rate its weights are not finite after six steps
    ['mobilenet_v2', '700MiB', 8, '8GiB', 128],
    ['vit_b_16', null, 8, '12GiB', 64],
    ['densenet121', null, 8, '12GiB', 64],
    ['alexnet', null, 8, '4GiB', 512],
  ].map(([arch, cpu, own, cuda, more]) =>
    row(
      `imagenet ${arch.split(' ')[0]}`,
      'imagenet',
      `main.py {data:images+4096+256} -a ${arch} --epochs 1 -p 1 -j 2`,
      {
        size: '-b',
        ...(cpu ? { cpu: { budget: cpu, own, args: '-j 0' } } : {}),
        cuda: { budget: cuda, own: more, args: '-j 6' },
      },
    ),
  ),
  row('super_resolution', 'super_resolution', 'main.py --upscale_factor 2 --nEpochs 1 --testBatchSize 4 --threads 0', {
    size: '--batchSize',
    links: { dataset: 'flat-images BSDS300/images/train,BSDS300/images/test 400 320' },
    cpu: { budget: '300MiB', own: 8 },
    cuda: { budget: '2GiB', own: 64, args: '--accel --threads 4' },
  }),
];
