"""Trains GPT-2, BERT or a Llama of 1B parameters of transformers (random weights and tokens, no dropout, AdamW, single precision): `blocks.py MODEL BATCH STEPS`.
Prints the last loss and the sum of the weights."""

import sys

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

name, batch, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(0)
if name == "gpt2":
    model = GPT2LMHeadModel(GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
elif name == "bert":
    model = BertForMaskedLM(BertConfig(hidden_dropout_prob=0, attention_probs_dropout_prob=0))
else:
    shape = dict(hidden_size=2048, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=128256, intermediate_size=8192, **shape))
model.to("cuda").train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)


class Tokens(Dataset):
    def __init__(self):
        self.tokens = torch.randint(model.config.vocab_size, (batch * steps, 512))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return self.tokens[index]


for ids in DataLoader(Tokens(), batch_size=batch):
    ids = ids.to("cuda")
    loss = model(input_ids=ids, labels=ids).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss %.6f, weights %.9f" % (loss.item(), sum(p.detach().double().sum().item() for p in model.parameters())))
