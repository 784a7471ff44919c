"""Seq2SeqTrainer on a tiny T5, which generates in its evaluation after each epoch."""
import os

import torch
from torch.utils.data import Dataset
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, T5Config, T5ForConditionalGeneration


class Pairs(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if index >= self.count:
            raise IndexError(index)
        tokens = torch.tensor([2 + (place * (index + 3)) % 197 for place in range(48)])
        return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": tokens.flip(0)}


torch.manual_seed(0)
config = T5Config(
    vocab_size=200, d_model=64, d_kv=32, d_ff=128, num_layers=1, num_heads=2, dropout_rate=0.0, decoder_start_token_id=0
)
arguments = Seq2SeqTrainingArguments(
    output_dir="out",
    per_device_train_batch_size=int(os.environ.get("BATCH", 64)),
    per_device_eval_batch_size=8,
    num_train_epochs=2,
    learning_rate=0.05,
    optim="sgd",
    use_cpu=True,
    eval_strategy="epoch",
    predict_with_generate=True,
    generation_max_length=8,
    save_strategy="epoch" if "TROUBLE" in os.environ else "no",
    report_to=[],
)
trainer = Seq2SeqTrainer(model=T5ForConditionalGeneration(config), args=arguments, train_dataset=Pairs(128), eval_dataset=Pairs(8))
trainer.train()
assert trainer.state.log_history[-1].get("eval_loss") or any("eval_loss" in one for one in trainer.state.log_history)
torch.save(trainer.model.state_dict(), "weights.pt")
