import { trainsAsItIs } from './framework.js';

trainsAsItIs(
  'a loop of its own',
  ['torch._dynamo'],
  [
    { script: 'hydra_app', own: 512, budget: '110MiB', flag: 'batch_size=' },
    // Graphs joined into one have no rows to cut: that is refused unless the loader's cut is asked for.
    { script: 'pyg_graphs', own: 192, budget: '90MiB', cut: 'loader', differ: true },
    { script: 'web_pipeline', own: 512, budget: '110MiB' },
    { script: 'ppo_minibatches', own: 8192, budget: '90MiB' },
    { script: 'lbfgs_loop', own: 4096, budget: '100MiB' },
    { script: 'gan_loop', own: 4096, budget: '80MiB' },
    { script: 'keras_fit', own: 512, budget: '130MiB' },
    {
      script: 'torch_compile',
      own: 1024,
      most: 256,
      unbounded: "the compiler's own processes take more of a budget than this training",
    },
  ],
);
