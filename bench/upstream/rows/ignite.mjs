/** pytorch-ignite's own example: its engine asks the loader for batches, and evaluates on the same loader. */
export const IGNITE = [
  {
    name: 'ignite mnist',
    repository: 'pytorch/ignite',
    folder: 'examples/mnist',
    command: 'mnist.py --epochs 1',
    links: { MNIST: 'mnist#MNIST' },
    size: '--batch_size',
    own: 1024,
    cpu: { budget: '250MiB' },
    cuda: { budget: '2GiB', own: 2048 },
  },
];
