import { trainsAsItIs } from './framework.js';

const YOLO =
  'model=tiny.yaml data=squares.yaml epochs=2 imgsz=64 nbs=32 device=cpu workers=0 plots=False amp=False val=False optimizer=SGD';

trainsAsItIs(
  'libraries for images',
  ['torchvision', 'timm'],
  [
    {
      script: 'yolo',
      console: 'yolo',
      args: `detect train ${YOLO} batch=32`.split(' '),
      own: 32,
      budget: '60MiB',
      flag: 'batch=',
      normalises: true,
    },
    { script: 'timm_loop', own: 96, budget: '65MiB' },
    { script: 'torchvision_detection', own: 96, budget: '40MiB', differ: true },
  ],
);
