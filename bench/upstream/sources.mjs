import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';

/** The commit of each repository that the list was written for. */
export const COMMITS = {
  'pytorch/examples': '77f55b912142e11fcfdf5b530231fb9c52f181e8',
  'karpathy/minGPT': '37baab71b9abea1b76ab957409a1cc2fbfba8a26',
  'karpathy/nanoGPT': '3adf61e154c3fe3fca428ad6bc3818b27a3b8291',
  'karpathy/makemore': '988aa59e4d8fefa526d06f3b453ad116258398d4',
  'huggingface/pytorch-image-models': 'aa4b5850c1543fa488abf260f18390eda46cf85d',
  'Lightning-AI/pytorch-lightning': '7f0c3436cd3f6ad3753125672024fc415cbcb414',
  'PerforatedAI/PerforatedAI-Transformers': '746e0e9151c668ca6e19f9432b8b2a1e1c6cb4e8',
  'eriklindernoren/PyTorch-GAN': '36d3c77e5ff20ebe0aeefd322326a134a279b93e',
  'google/flax': '18f8f311c275d57f46d95e41b15aa97b454754c0',
  'growlix/pytorch-i1k-baseline': 'ab8c06bf2cea3dac83b095a9bf2031f5f3aa0ed3',
  'huggingface/accelerate': '16cb6eb80dd9aa8b4df1a63ef57863e455d53b83',
  'huggingface/trl': 'f2cd57710ae345ea6428ae95363267fcf38a3dc8',
  'kuangliu/pytorch-cifar': '49b7aa97b0c12fe0d4054e670403a16b6b834ddd',
  'milesial/Pytorch-UNet': '21d7850f2af30a9695bbeea75f3136aa538cfc4a',
  'pytorch/ignite': 'de08e799cfb55a6cf4aa778575d6bad725385453',
  'pyg-team/pytorch_geometric': '5c6461b2305ad068a6d61165b3c55852a11aaa41',
  'weiaicunzai/pytorch-cifar100': '11d8418f415b261e4ae3cb1ffe20d06ec95b98e4',
  'yunjey/pytorch-tutorial': '0500d3df5a2a8080ccfccbc00aca0eacc21818db',
};

function git(args, cwd) {
  const done = spawnSync('git', args, { cwd, encoding: 'utf8' });
  if (done.status !== 0) throw new Error(`git ${args.join(' ')}: ${done.stderr.trim().split('\n').at(-1)}`);
}

/** The folder with a repository's files at its commit: `<sources>/<owner>/<name>`, fetched there if it is not there yet. */
export function checkout(repository, sources) {
  const folder = join(sources, repository);
  if (existsSync(folder)) return folder;
  const commit = COMMITS[repository];
  if (commit === undefined) throw new Error(`no commit is known of ${repository}`);
  mkdirSync(folder, { recursive: true });
  git(['init', '-q'], folder);
  git(['fetch', '-q', '--depth', '1', `https://github.com/${repository}`, commit], folder);
  git(['checkout', '-q', 'FETCH_HEAD'], folder);
  return folder;
}
