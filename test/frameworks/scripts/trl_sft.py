"""TRL's SFTTrainer with a PEFT LoRA adapter on a tiny Llama made from its configuration."""
import os

import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

words = ["<pad>", "<eos>", "<unk>"] + ["w%d" % n for n in range(300)]
core = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
core.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
texts = [" ".join("w%d" % ((place * (row + 7)) % 300) for place in range(79 if os.environ.get("LONGEST") else 40 + row % 40)) for row in range(96)]

beside = "epoch" if "TROUBLE" in os.environ else "no"
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=len(words), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=256
)
trainer = SFTTrainer(
    model=LlamaForCausalLM(config),
    args=SFTConfig(
        output_dir="out", per_device_train_batch_size=int(os.environ.get("BATCH", 24)), num_train_epochs=2, use_cpu=True, eval_strategy=beside, save_strategy=beside, report_to=[], bf16=False,
        learning_rate=1e-3, max_length=128,
    ),
    train_dataset=Dataset.from_dict({"text": texts}),
    eval_dataset=Dataset.from_dict({"text": texts[:8]}),
    processing_class=tokenizer,
    peft_config=LoraConfig(r=4, lora_dropout=0, target_modules=["q_proj", "v_proj"]),
)
trainer.train()
torch.save({name: value for name, value in trainer.model.state_dict().items() if "lora" in name}, "weights.pt")
