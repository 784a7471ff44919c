/** PyG's examples: a batch is one graph made of many. */
const row = (name, more) => ({
  name: `PyG ${name}`,
  repository: 'pyg-team/pytorch_geometric',
  folder: 'examples',
  ...more,
});

export const GRAPHS = [
  row('mutag_gin', {
    command: 'mutag_gin.py --epochs 3',
    folders: ['examples/mutag_gin.py'],
    links: { '../data/TU': 'graphs MUTAG 2000' },
    size: '--batch_size',
    cpu: { budget: '60MiB', own: 256 },
    cuda: { budget: '1GiB', own: 512, cut: false },
  }),
  row('proteins_topk_pool', {
    lengths: true, // its graphs differ in size
    command: 'proteins_topk_pool.py',
    folders: ['examples/proteins_topk_pool.py'],
    links: { '../data/PROTEINS': 'graphs PROTEINS 2000' },
    own: 60,
    cpu: { budget: '60MiB' },
    cuda: { budget: '1GiB', cut: false },
  }),
];
