"""The Trainer on an IterableDataset that packs texts of many lengths into blocks of one."""
import os

import torch
from torch.utils.data import IterableDataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

BLOCK = 64


class Packed(IterableDataset):
    def __iter__(self):
        left = []
        for row in range(600):
            left += [1 + (place * (row + 3)) % 199 for place in range(20 + (row * 37) % 100)] + [0]
            while len(left) >= BLOCK:
                block, left = left[:BLOCK], left[BLOCK:]
                yield {"input_ids": torch.tensor(block), "labels": torch.tensor(block)}


torch.manual_seed(0)
config = GPT2Config(vocab_size=200, n_positions=BLOCK, n_embd=64, n_layer=1, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
arguments = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=int(os.environ.get("BATCH", 128)),
    max_steps=5,
    learning_rate=0.05,
    optim="sgd",
    use_cpu=True,
    save_strategy="no",
    report_to=[],
)
trainer = Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=Packed())
trainer.train()
torch.save(trainer.model.state_dict(), "weights.pt")
