import { tellsTroubleOf } from './trouble.js';

// lbfgs_loop and ppo_minibatches evaluate nothing, and save by the same line; PPO has no loader.
tellsTroubleOf([
  { of: 'a PyG loop', script: 'pyg_graphs', batch: 64 },
  { of: 'a loop that Hydra configures', script: 'hydra_app', args: 'batch_size=256' },
  { of: 'a GAN that draws samples', script: 'gan_loop' },
  { of: 'a loop as in pytorch/examples', script: 'examples_mnist' },
  { of: 'a loop that evaluates a compiled model', script: 'torch_compile', only: ['evaluation'] },
  {
    of: 'a loop over a webdataset, which evaluates nothing',
    script: 'web_pipeline',
    batch: 256,
    only: ['saving', 'worker'],
  },
]);
