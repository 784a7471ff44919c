"""Makes what `litgpt finetune_lora` reads: a tiny Pythia with its tokenizer in `checkpoint`, and rows.json."""

import json
from pathlib import Path

import torch
from litgpt import GPT, Config
from litgpt.utils import save_config
from tokenizers import Tokenizer, models, pre_tokenizers

folder = Path("checkpoint/eleutherai/pythia-14m")
folder.mkdir(parents=True, exist_ok=True)
words = ["<pad>", "<eos>", "<unk>"] + ["w%d" % n for n in range(300)]
core = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
core.pre_tokenizer = pre_tokenizers.Whitespace()
core.save(str(folder / "tokenizer.json"))
tokenizer = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<eos>", "bos_token": "<eos>"}
(folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
(folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 1, "bos_token_id": 1}))
torch.manual_seed(0)
sizes = dict(n_layer=2, n_embd=64, n_head=2, intermediate_size=128, block_size=256, padded_vocab_size=512, vocab_size=303)
config = Config.from_name("pythia-14m", **sizes)
save_config(config, folder)
torch.save(GPT(config).state_dict(), folder / "lit_model.pth")
rows = []
for row in range(256):
    asked = " ".join("w%d" % ((place * (row + 7)) % 300) for place in range(60))
    rows.append({"instruction": asked, "input": "", "output": " ".join("w%d" % ((place + row) % 300) for place in range(60))})
Path("rows.json").write_text(json.dumps(rows))
