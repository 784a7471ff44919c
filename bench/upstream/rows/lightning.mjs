/** Lightning's examples: LightningCLI, the Trainer, Fabric, and the plain loops beside them. */
const row = (name, folder, command, more) => ({
  name: `Lightning ${name}`,
  repository: 'Lightning-AI/pytorch-lightning',
  folders: ['examples'],
  folder: `examples/${folder}`,
  command,
  ...more,
});
const DATA = { '../../Datasets': 'mnist', data: 'mnist' };
/** (With checkpoints, as the scripts test the best one at their end.) */
const CLI = '--trainer.max_epochs=1 --trainer.logger=false --trainer.limit_val_batches=1';

export const LIGHTNING = [
  row('backbone_image_classifier (CLI)', 'pytorch/basics', `backbone_image_classifier.py ${CLI}`, {
    links: DATA,
    size: '--data.batch_size=',
    cpu: { budget: '200MiB', own: 2048 },
    cuda: { budget: '768MiB', own: 8192 },
  }),
  row('autoencoder (CLI)', 'pytorch/basics', `autoencoder.py ${CLI}`, {
    links: DATA,
    size: '--data.batch_size=',
    cpu: { budget: '200MiB', own: 2048 },
    cuda: { budget: '768MiB', own: 8192 },
  }),
  row('transformer', 'pytorch/basics', 'transformer.py', {
    links: { data: 'wikitext 8000' },
    own: 20,
    cpu: { budget: '300MiB' },
    cuda: { budget: '4GiB', cut: false },
  }),
  row('generative_adversarial_net', 'pytorch/domain_templates', 'generative_adversarial_net.py', {
    links: { data: 'mnist' },
    own: 32,
    cuda: { budget: '1GiB', cut: false },
  }),
  row('Fabric image_classifier, plain torch', 'fabric/image_classifier', 'train_torch.py --epochs 1', {
    links: { '../../Datasets': 'mnist', Datasets: 'mnist', '../../../Datasets': 'mnist' },
    size: '--batch-size',
    cpu: { budget: '250MiB', own: 256 },
    cuda: { budget: '4GiB', own: 4096 },
  }),
  row('Fabric image_classifier', 'fabric/image_classifier', 'train_fabric.py --epochs 1', {
    links: { '../../Datasets': 'mnist', Datasets: 'mnist', '../../../Datasets': 'mnist' },
    size: '--batch-size',
    cpu: { budget: '250MiB', own: 256 },
    cuda: { budget: '4GiB', own: 4096 },
  }),
  row('Fabric language_model', 'fabric/language_model', 'train.py', {
    links: { data: 'wikitext 8000' },
    own: 20,
    cpu: { budget: '300MiB' },
    cuda: { budget: '4GiB', cut: false },
  }),
];
