"""A classifier trained with transformers' Trainer, by flags; its loss is a mean whatever number of items Trainer gives it."""
import torch
from hf_classifier_model import Reviews, classifier
from transformers import HfArgumentParser, Trainer, TrainingArguments

(arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
trainer = Trainer(model=classifier(), args=arguments, train_dataset=Reviews())
trainer.train()
torch.save(trainer.model.state_dict(), "weights.pt")
