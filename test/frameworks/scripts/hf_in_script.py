"""The Trainer with its arguments in the script, accumulation, checkpointing, samples of many lengths grouped by length."""
import os

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Text(Dataset):
    def __len__(self):
        return 128

    def __getitem__(self, index):
        if index >= len(self):
            raise IndexError(index)
        length = 24 + (index * 37) % 100
        tokens = [(place * (index + 3)) % 199 for place in range(length)]
        return {"input_ids": tokens, "attention_mask": [1] * length, "labels": tokens}


class Pad:
    def __call__(self, samples):
        length = max(len(sample["input_ids"]) for sample in samples)
        pad = lambda values, filler: values + [filler] * (length - len(values))  # noqa: E731
        return {
            "input_ids": torch.tensor([pad(s["input_ids"], 0) for s in samples]),
            "attention_mask": torch.tensor([pad(s["attention_mask"], 0) for s in samples]),
            "labels": torch.tensor([pad(s["labels"], -100) for s in samples]),
        }


torch.manual_seed(0)
config = GPT2Config(vocab_size=200, n_positions=128, n_embd=64, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
arguments = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=int(os.environ.get("BATCH", 32)),
    gradient_accumulation_steps=2,
    gradient_checkpointing=True,
    num_train_epochs=2,
    learning_rate=0.05,
    optim="sgd",
    use_cpu=True,
    save_strategy="no",
    report_to=[],
    train_sampling_strategy="group_by_length",
)
model = GPT2LMHeadModel(config).eval()  # as from_pretrained() leaves it
trainer = Trainer(model=model, args=arguments, train_dataset=Text(), data_collator=Pad())
trainer.train()
torch.save(trainer.model.state_dict(), "weights.pt")
