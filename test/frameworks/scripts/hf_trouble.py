"""The Trainer where memory runs out beside the training: `hf_trouble.py evaluation|saving|worker`."""
import sys

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

how = sys.argv[1]


class Text(Dataset):
    def __init__(self, count, greedy=False):
        self.count, self.greedy = count, greedy

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.greedy and index > 40:
            index = int(torch.ones(64 << 20).sum()) % self.count  # 256 MiB
        tokens = (torch.arange(64) * (index + 3)) % 199
        return {"input_ids": tokens, "labels": tokens}


class Copying(Trainer):
    def _save(self, output_dir=None, state_dict=None):
        self.copies = [{name: tensor.double() for name, tensor in self.model.state_dict().items()} for _ in range(200)]
        super()._save(output_dir, state_dict)


torch.manual_seed(0)
config = GPT2Config(vocab_size=200, n_positions=64, n_embd=64, n_layer=1, n_head=2)
arguments = TrainingArguments(
    output_dir="out", per_device_train_batch_size=8, per_device_eval_batch_size=512, max_steps=6, use_cpu=True, report_to=[],
    eval_strategy="steps" if how == "evaluation" else "no", eval_steps=3, save_strategy="steps" if how == "saving" else "no", save_steps=3,
    dataloader_num_workers=1 if how == "worker" else 0,
)
trainer = (Copying if how == "saving" else Trainer)(
    model=GPT2LMHeadModel(config), args=arguments, train_dataset=Text(64, how == "worker"), eval_dataset=Text(512)
)
trainer.train()
