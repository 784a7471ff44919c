import { tellsTroubleOf } from './trouble.js';

const CLI =
  'fit --trainer.accelerator cpu --trainer.max_epochs 2 --trainer.logger false --trainer.enable_progress_bar false';

tellsTroubleOf([
  { of: 'LightningCLI', script: 'lightning_cli', args: CLI },
  { of: 'Lightning with a DataModule', script: 'lightning_datamodule', batch: 64 },
  // It has no validation_step, and saves by itself when Lightning is done.
  { of: 'Lightning with manual optimization', script: 'lightning_manual', batch: 1024, only: ['saving', 'worker'] },
]);
