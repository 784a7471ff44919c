"""A language model trained with transformers' Trainer; flags as TrainingArguments has them."""
import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments


class Text(Dataset):
    def __len__(self):
        return 160

    def __getitem__(self, index):
        length = 96
        tokens = (torch.arange(length) * (index + 3)) % 199
        return {"input_ids": tokens, "labels": tokens}


def main():
    (arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=200, n_positions=128, n_embd=64, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
    )
    trainer = Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=Text(), eval_dataset=Text())
    trainer.train()
    torch.save(trainer.model.state_dict(), "weights.pt")


if __name__ == "__main__":
    main()
