"""Makes what `llamafactory-cli train` reads: a tiny Llama's configuration and tokenizer in `model`, and rows with their index in `data`."""

import json
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers

model = Path("model")
model.mkdir()
words = ["<pad>", "<eos>", "<unk>"] + ["w%d" % n for n in range(300)]
core = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
core.pre_tokenizer = pre_tokenizers.Whitespace()
core.save(str(model / "tokenizer.json"))
special = dict(pad_token="<pad>", eos_token="<eos>", bos_token="<eos>", unk_token="<unk>")
(model / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **special}))
sizes = dict(vocab_size=320, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2)
ends = dict(pad_token_id=0, bos_token_id=1, eos_token_id=1, max_position_embeddings=128)
(model / "config.json").write_text(json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"], **sizes, **ends}))
data = Path("data")
data.mkdir()
rows = [{"text": " ".join("w%d" % ((place * (row + 7)) % 300) for place in range(63))} for row in range(128)]
(data / "rows.json").write_text(json.dumps(rows))
(data / "dataset_info.json").write_text(json.dumps({"rows": {"file_name": "rows.json", "columns": {"prompt": "text"}}}))
