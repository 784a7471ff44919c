"""Six layers of GPT-2 with random weights and tokens under HF's Trainer: takes all of its arguments."""

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments


class Tokens(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(index)
        ids = torch.randint(0, 50257, (512,), generator=g)
        return {"input_ids": ids, "labels": ids.clone()}


def main():
    (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    model = GPT2LMHeadModel(GPT2Config(n_layer=6))
    trainer = Trainer(model=model, args=args, train_dataset=Tokens())
    result = trainer.train()
    print("trained", args.per_device_train_batch_size, args.gradient_accumulation_steps, args.bf16, "loss %.3f" % result.training_loss, "steps", result.global_step)


main()
