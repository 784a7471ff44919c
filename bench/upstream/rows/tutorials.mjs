/** yunjey/pytorch-tutorial: no flag at all, the batch size is a name in the script. */
const tutorial = (name, own, cpu, cuda, more = {}) => ({
  name: `pytorch-tutorial ${name.split('/')[1]}`,
  repository: 'yunjey/pytorch-tutorial',
  folder: `tutorials/${name}`,
  command: 'main.py',
  links: { '../../data': 'mnist', '../../../data': 'mnist' },
  own,
  ...(cpu ? { cpu: { budget: cpu } } : {}),
  cuda: { budget: cuda, cut: false }, // beside CUDA's own memory so small a batch is nothing
  ...more,
});

export const TUTORIALS = [
  tutorial('01-basics/logistic_regression', 100, '140MiB', '640MiB'),
  tutorial('01-basics/feedforward_neural_network', 100, '160MiB', '768MiB'),
  tutorial('02-intermediate/convolutional_neural_network', 100, '200MiB', '3GiB'),
  tutorial('02-intermediate/recurrent_neural_network', 100, '200MiB', '1GiB'),
  tutorial('02-intermediate/bidirectional_recurrent_neural_network', 100, null, '1GiB'),
  tutorial('02-intermediate/deep_residual_network', 100, '400MiB', '3GiB', {
    links: { '../../data': 'cifar 10 5000' },
    made: true,
  }),
  tutorial('02-intermediate/language_model', 20, '400MiB', '3GiB', { links: { data: 'corpus 4000' }, truth: false }),
  tutorial('03-advanced/generative_adversarial_network', 100, '200MiB', '1GiB', {
    links: { '../../data': 'mnist' },
    // Its loop uses the number, too, so that a loader of another size alone is no start of it with that size.
    constant: ['main.py', 'batch_size = ', '\n'],
  }),
  tutorial('03-advanced/variational_autoencoder', 128, '180MiB', '1GiB', { links: { '../../data': 'mnist' } }),
];
