"""Six layers of BERT in a loop of accelerate's that makes one step of two batches, and ends after twelve."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification

accelerator = Accelerator(gradient_accumulation_steps=2, mixed_precision="bf16")
torch.manual_seed(0)
data = TensorDataset(torch.randint(0, 30000, (4096, 128)), torch.randint(0, 2, (4096,)))
model = BertForSequenceClassification(BertConfig(num_hidden_layers=6))
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1.0)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=8, shuffle=True), schedule)
steps = seen = 0
for epoch in range(2):
    for ids, labels in loader:
        with accelerator.accumulate(model):
            loss = model(input_ids=ids, labels=labels).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        seen += len(ids)
        steps += accelerator.sync_gradients
        if steps >= 12:
            break
    if steps >= 12:
        break
print("trained", seen, "samples in", steps, "steps, loss %.3f" % loss.item())
