import { trainsAsItIs } from './framework.js';

trainsAsItIs(
  'a loop of its own',
  ['torch._dynamo'],
  [
    { script: 'hydra_app', own: 128, most: 32 },
    // Graphs joined into one have no rows to cut: that is refused unless the loader's cut is asked for.
    { script: 'pyg_graphs', own: 64, most: 16, cut: 'loader' },
    { script: 'web_pipeline', own: 512, budget: '80MiB' },
    { script: 'ppo_minibatches', own: 8192, budget: '90MiB' },
    { script: 'lbfgs_loop', own: 4096, budget: '100MiB', unbounded: true },
    { script: 'gan_loop', own: 4096, budget: '80MiB' },
    { script: 'torch_compile', own: 1024, most: 256 },
  ],
);
