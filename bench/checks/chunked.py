"""Milliseconds a step of GPT-2 or BERT of transformers (random weights and tokens, 8 x 512, SGD) on a GPU, after the first four: `chunked.py MODEL STEPS`."""

import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

name, steps = sys.argv[1], int(sys.argv[2])
torch.manual_seed(0)
if name == "gpt2":
    model = GPT2LMHeadModel(GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
else:
    model = BertForMaskedLM(BertConfig(hidden_dropout_prob=0, attention_probs_dropout_prob=0))
model.cuda().train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


class Tokens(Dataset):
    def __init__(self):
        self.tokens = torch.randint(model.config.vocab_size, (8 * (steps + 4), 512))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return self.tokens[index]


for step, ids in enumerate(DataLoader(Tokens(), batch_size=8)):
    if step == 4:
        torch.cuda.synchronize()
        begun = time.perf_counter()
    ids = ids.cuda()
    loss = model(input_ids=ids, labels=ids).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
torch.cuda.synchronize()
print("%s: %.1f ms a step" % (name, 1e3 * (time.perf_counter() - begun) / steps))
