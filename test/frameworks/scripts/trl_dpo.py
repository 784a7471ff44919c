"""TRL's DPOTrainer on a tiny Llama: preferences, judged beside a reference model."""
import os

import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer

words = ["<pad>", "<eos>", "<unk>"] + ["w%d" % n for n in range(300)]
core = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
core.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def text(row, step, length):
    return " ".join("w%d" % ((place * (row + step)) % 300) for place in range(length))


rows = [{"prompt": text(r, 7, 10), "chosen": text(r, 11, 20), "rejected": text(r, 13, 20)} for r in range(96)]
beside = "epoch" if "TROUBLE" in os.environ else "no"
# Then the model without its adapter is the reference: only evaluation calls a model that is not in training mode.
adapter = LoraConfig(r=4, lora_dropout=0, target_modules=["q_proj", "v_proj"]) if "TROUBLE" in os.environ else None
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=len(words), hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=256
)
trainer = DPOTrainer(
    model=LlamaForCausalLM(config),
    ref_model=None if adapter else LlamaForCausalLM(config),
    peft_config=adapter,
    args=DPOConfig(
        output_dir="out", per_device_train_batch_size=int(os.environ.get("BATCH", 24)), num_train_epochs=1, use_cpu=True,
        eval_strategy=beside, save_strategy=beside, report_to=[], bf16=False, learning_rate=1e-2, optim="sgd", max_length=96,
    ),
    train_dataset=Dataset.from_list(rows),
    eval_dataset=Dataset.from_list(rows[:8]),
    processing_class=tokenizer,
)
trainer.train()
torch.save(trainer.model.state_dict(), "weights.pt")
