import { tellsTroubleOf } from './trouble.js';

const YOLO = 'model=tiny.yaml data=squares.yaml epochs=2 imgsz=64 device=cpu workers=1 plots=False amp=False';

tellsTroubleOf([
  {
    of: 'Ultralytics',
    script: 'yolo',
    console: 'yolo',
    args: `detect train ${YOLO} batch=16`,
    // Its models call their forward pass `predict`, in training, too.
    only: ['evaluation', 'saving', 'worker', 'training'],
  },
  { of: 'a timm loop', script: 'timm_loop', batch: 32 },
  { of: 'a torchvision detection loop', script: 'torchvision_detection', batch: 32 },
]);
