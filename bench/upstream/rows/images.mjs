/** Training scripts for images: timm's, torchvision's reference, and those of CIFAR and segmentation. */
const timm = (model, cpu, cuda, own, more = '') => ({
  name: `timm train.py ${model}`,
  repository: 'huggingface/pytorch-image-models',
  folders: ['train.py', 'timm'],
  command: `train.py {data:images+4096+256} --model ${model} --epochs 1 --num-classes 4 --log-interval 1 --output out ${more}`,
  size: '-b',
  ...(cpu ? { cpu: { budget: cpu, own: 8, args: '--device cpu -j 1 --img-size 96 --no-prefetcher' } } : {}),
  cuda: { budget: cuda, own, args: '-j 6' },
});
// It asks for its rank: without a launcher it ends with "Default process group has not been initialized".
const reference = (model, cuda, own) => ({
  name: `torchvision reference ${model} (torchrun)`,
  repository: 'growlix/pytorch-i1k-baseline',
  folder: 'references/classification',
  command: `-m torch.distributed.run --standalone --nproc-per-node 1 train.py --data-path {data:images+4096+256+8} --model ${model} --epochs 1 --print-freq 1 --workers 6`,
  size: '--batch-size',
  cuda: { budget: cuda, own },
});
const cifar100 = (net, cpu, cuda) => ({
  name: `pytorch-cifar100 ${net}`,
  repository: 'weiaicunzai/pytorch-cifar100',
  command: `train.py -net ${net}`,
  size: '-b',
  links: { data: 'cifar 100 10000' },
  made: true,
  logs: ['torch.utils.tensorboard'],
  ...(cpu ? { cpu: { budget: cpu, own: 32 } } : {}),
  cuda: { budget: cuda, own: 512, args: '-gpu' },
});

export const IMAGES = [
  timm('resnet18', '300MiB', '8GiB', 256),
  timm('vit_small_patch16_224', null, '12GiB', 128),
  timm('convnext_tiny', null, '12GiB', 64),
  timm('efficientnet_b0', null, '8GiB', 128),
  timm('mobilenetv3_small_100', '300MiB', '8GiB', 256, '--opt adamw'),
  timm('swin_tiny_patch4_window7_224', null, '12GiB', 64, '--grad-accum-steps 2'),
  reference('resnet18', '8GiB', 256),
  reference('shufflenet_v2_x0_5', '4GiB', 256),
  reference('regnet_y_400mf', '8GiB', 128),
  cifar100('resnet18', null, '8GiB'),
  cifar100('squeezenet', '300MiB', '8GiB'),
  cifar100('mobilenetv2', null, '8GiB'),
  {
    name: 'pytorch-cifar SimpleDLA',
    repository: 'kuangliu/pytorch-cifar',
    command: 'main.py',
    links: { data: 'cifar 10 10000' },
    made: true,
    own: 128,
    cuda: { budget: '8GiB' },
  },
  {
    name: 'Pytorch-UNet',
    repository: 'milesial/Pytorch-UNet',
    command: 'train.py --epochs 1 --scale 0.5',
    links: { data: 'masked-images 300 256' },
    logs: ['wandb'],
    size: '--batch-size',
    cpu: { budget: '1500MiB', own: 4, args: '--scale 0.25' },
    cuda: { budget: '8GiB', own: 32 },
  },
];
