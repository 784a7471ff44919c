"""Adapters on six layers of GPT-2, trained on samples of 32 to 512 tokens, padded to the longest of their batch."""

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
model = get_peft_model(GPT2LMHeadModel(GPT2Config(n_layer=6)), LoraConfig(r=8, target_modules=["c_attn"], fan_in_fan_out=True)).cuda()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-3)
samples = [torch.randint(0, 50257, (torch.randint(32, 512, ()).item(),)) for _ in range(3000)]


def collate(batch):
    longest = max(len(one) for one in batch)
    ids = torch.full((len(batch), longest), 0)
    mask = torch.zeros_like(ids)
    for row, one in enumerate(batch):
        ids[row, : len(one)] = one
        mask[row, : len(one)] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


seen = steps = 0
for batch in DataLoader(samples, batch_size=4, shuffle=True, collate_fn=collate, num_workers=2):
    out = model(**{k: v.cuda() for k, v in batch.items()})
    out.loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    seen += len(batch["input_ids"])
    steps += 1
    if steps == 12:
        break
print("trained", seen, "samples in", steps, "steps, loss %.3f" % out.loss.item())
