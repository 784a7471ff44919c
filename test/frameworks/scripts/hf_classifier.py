"""A classifier trained with transformers' Trainer on a loader of the script: no argument sets its batches, and the model's loss is a mean
whatever number of items Trainer gives it."""
import gc
import os

import torch
from hf_classifier_model import Reviews, classifier
from torch.utils.data import DataLoader
from transformers import Trainer, TrainingArguments


class InOrder(Trainer):
    def get_train_dataloader(self):
        return DataLoader(self.train_dataset, batch_size=int(os.environ.get("BATCH", 32)))


arguments = TrainingArguments(
    "out", use_cpu=True, max_steps=6, optim="sgd", learning_rate=0.05, save_strategy="no", report_to="none"
)
trainer = InOrder(model=classifier(), args=arguments, train_dataset=Reviews())
trainer.train()
if trainer.is_world_process_zero():
    torch.save(trainer.model.state_dict(), "weights.pt")
if torch.distributed.is_initialized():
    # torch 2.15 aborts now and then where gloo's groups outlive the process
    del trainer
    gc.collect()
    torch.distributed.destroy_process_group()
