"""Makes what `trl sft` reads: `model` (a tiny Llama with its tokenizer) and `rows` (a data set of prompts and completions)."""
import json
import os

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

words = ["<pad>", "<eos>", "<unk>"] + ["w%d" % n for n in range(300)]
core = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
core.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>").save_pretrained("model")
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=len(words), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=256
)
LlamaForCausalLM(config).save_pretrained("model")
os.makedirs("rows", exist_ok=True)
with open("rows/train.jsonl", "w") as file:
    for row in range(192):
        text = " ".join("w%d" % ((place * (row + 7)) % 300) for place in range(60))
        file.write(json.dumps({"text": text}) + "\n")
