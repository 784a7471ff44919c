/** Openings of real entry points: what recognition and version rules go by. */
export const TIMM = `import argparse
import torch
from timm.data import create_dataset, create_loader
parser = argparse.ArgumentParser(description='PyTorch ImageNet Training')
group = parser.add_argument_group('Model parameters')
group.add_argument('-b', '--batch-size', type=int, default=128, metavar='N', help='Input batch size')
group.add_argument('-vb', '--validation-batch-size', type=int, default=None, metavar='N')
group.add_argument('--grad-accum-steps', type=int, default=1, metavar='N')
group.add_argument('--grad-checkpointing', action='store_true', default=False)
group.add_argument('--amp', action='store_true', default=False)
group.add_argument('--amp-dtype', default='float16', type=str)
`;
/** timm 0.6: no accumulation, --amp is fp16. */
export const TIMM_OLD = `import argparse
from timm.models import create_model
parser.add_argument('-b', '--batch-size', type=int, default=128, metavar='N')
parser.add_argument('--grad-checkpointing', action='store_true', default=False)
parser.add_argument('--amp', action='store_true', default=False)
parser.add_argument('--native-amp', action='store_true', default=False)
`;
export const HF = `import transformers
from transformers import HfArgumentParser, Trainer, TrainingArguments
def main():
    parser = HfArgumentParser((ModelArguments, DataTrainingArguments, TrainingArguments))
    if len(sys.argv) == 2 and sys.argv[1].endswith(".json"):
        args = parser.parse_json_file(json_file=os.path.abspath(sys.argv[1]))
`;
export const HF_HARDCODED = `from transformers import Trainer, TrainingArguments
args = TrainingArguments(output_dir="out", per_device_train_batch_size=8)
Trainer(model=model, args=args, train_dataset=data).train()
`;
export const NO_TRAINER = `import argparse
from accelerate import Accelerator
parser.add_argument("--per_device_train_batch_size", type=int, default=8)
parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
`;
export const DIFFUSERS = `import argparse
from accelerate import Accelerator
import diffusers
parser.add_argument(
        "--train_batch_size", type=int, default=16, help="Batch size (per device)"
)
parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
parser.add_argument("--gradient_checkpointing", action="store_true")
parser.add_argument("--mixed_precision", type=str, default=None, choices=["no", "fp16", "bf16"])
`;
export const NANOGPT = `import torch
# data
gradient_accumulation_steps = 5 * 8 # used to simulate larger batch sizes
batch_size = 12 # if gradient_accumulation_steps > 1, this is the micro-batch size
dtype = 'bfloat16' if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else 'float16'
config_keys = [k for k,v in globals().items() if not k.startswith('_')]
exec(open('configurator.py').read()) # overrides from command line or config file
`;
export const LIGHTNING = `from lightning.pytorch.cli import LightningCLI
class Data(LightningDataModule):
    def __init__(self, batch_size: int = 32): ...
LightningCLI(Model, Data)
`;
export const IMAGENET = `import argparse
import torch
import torchvision.models as models
parser.add_argument('-b', '--batch-size', default=256, type=int,
                    metavar='N',
                    help='mini-batch size (default: 256), this is the total '
                         'batch size of all GPUs on the current node')
parser.add_argument('--multiprocessing-distributed', action='store_true')
`;
export const DEEPSPEED = `import deepspeed
parser = deepspeed.add_config_arguments(parser)
engine, _, loader, _ = deepspeed.initialize(args=args, model=model)
`;
export const PLAIN = `import torch
from torch.utils.data import DataLoader
for x, y in DataLoader(data, batch_size=8): ...
`;
