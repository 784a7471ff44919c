/** eriklindernoren/PyTorch-GAN: two optimizers, several losses, noise drawn for each batch. */
const gan = (name, cpu, cuda, more = {}) => ({
  name: `PyTorch-GAN ${name}`,
  repository: 'eriklindernoren/PyTorch-GAN',
  folder: `implementations/${name}`,
  command: `${name}.py --n_epochs 10`,
  links: { '../../data/mnist': 'mnist' },
  size: '--batch_size',
  cpu: cpu ? { budget: cpu, own: 256 } : { budget: '300MiB', own: 64 },
  cuda: { budget: cuda, own: 2048 },
  ...more,
});

export const GANS = [
  gan('gan', '180MiB', '2GiB'),
  gan('dcgan', null, '3GiB'),
  gan('wgan', '180MiB', '2GiB'),
  gan('wgan_gp', '180MiB', '2GiB'),
  gan('lsgan', null, '3GiB'),
  gan('cgan', '180MiB', '2GiB'),
  gan('acgan', null, '3GiB'),
  // It draws a picture of a hundred samples after its first step, whatever its batch: 300 MiB hold none.
  gan('infogan', null, '3GiB', { cpu: { budget: '600MiB', own: 64 } }),
  gan('relativistic_gan', null, '3GiB'),
  gan('dragan', null, '3GiB'),
  gan('ebgan', null, '3GiB'),
  gan('began', null, '3GiB'),
  gan('softmax_gan', null, '2GiB'),
  gan('aae', '180MiB', '2GiB'),
  gan('sgan', null, '3GiB'),
];
