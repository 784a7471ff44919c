"""sentence-transformers with in-batch negatives: 512 pairs of random sentences of 48 words, in batches of 64, four steps. Prints the sum of the
weights' magnitudes. The model, made at the first start, is kept in FOLDER: `negatives.py FOLDER`."""

import os
import random
import sys

import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
    losses,
    models,
)
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

folder = sys.argv[1]
torch.manual_seed(0)
random.seed(0)
words = ["w%d" % number for number in range(2000)]
MARKS = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
if not os.path.exists(os.path.join(folder, "config.json")):
    vocabulary = {word: number for number, word in enumerate([*MARKS.values(), *words])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    shape = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512}
    config = BertConfig(vocab_size=2005, hidden_dropout_prob=0, attention_probs_dropout_prob=0, **shape)
    BertModel(config).save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **MARKS).save_pretrained(folder)


def sentences():
    return [" ".join(random.choices(words, k=48)) for _ in range(512)]


parts = [models.Transformer(folder, max_seq_length=64), models.Pooling(128)]
model = SentenceTransformer(modules=parts, device="cpu")
arguments = SentenceTransformerTrainingArguments(
    output_dir=os.path.join(folder, "out"),
    per_device_train_batch_size=64,
    max_steps=4,
    logging_steps=1,
    save_strategy="no",
    report_to="none",
    seed=1,
    use_cpu=True,
    learning_rate=1e-3,
)
pairs = Dataset.from_dict({"anchor": sentences(), "positive": sentences()})
loss = losses.MultipleNegativesRankingLoss(model)
SentenceTransformerTrainer(model=model, args=arguments, train_dataset=pairs, loss=loss).train()
print("weights %.7f" % sum(parameter.detach().double().abs().sum().item() for parameter in model.parameters()))
