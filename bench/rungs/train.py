"""Trains a model of transformers with random weights, as a script would that knows nothing of oomtune; the hook puts the rung on.
Prints one line of JSON: peak bytes, samples a second, losses, and what tells its gradients and weights from another run's.
Arguments: model (gpt2, llama, bert; with `-compiled` behind it: by torch.compile; `-adamw`: with AdamW), device, size (small, real), samples, tokens, steps."""

import json
import resource
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

NAME, DEVICE, SIZE = sys.argv[1:4]
NAME, *KINDS = NAME.split("-")
SAMPLES, TOKENS, STEPS = (int(text) for text in sys.argv[4:])


def model_of(name, small):
    if name == "gpt2":
        width = {"n_embd": 128, "n_layer": 2, "n_head": 2} if small else {}
        return GPT2LMHeadModel(GPT2Config(**width, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    heads = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512}
    if name == "bert":
        return BertForMaskedLM(
            BertConfig(**(heads if small else {}), hidden_dropout_prob=0, attention_probs_dropout_prob=0)
        )
    real = {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8}
    real.update(intermediate_size=8192)
    return LlamaForCausalLM(LlamaConfig(vocab_size=32000 if small else 128256, **(heads if small else real)))


class Text(Dataset):
    def __init__(self, words):
        self.tokens = torch.randint(words, (SAMPLES * (STEPS + 1), TOKENS))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return self.tokens[index]


def seal(tensors):
    """For each tensor its norm and its product with a random one."""
    found = []
    for number, tensor in enumerate(tensors):
        generator = torch.Generator(tensor.device).manual_seed(number)
        other = torch.randn(tensor.shape, generator=generator, device=tensor.device)
        wide = tensor.detach().double()
        found.append([wide.norm().item(), (wide * other).sum().item()])
    return found


def resident():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main():
    torch.manual_seed(0)
    model = model_of(NAME, SIZE == "small")
    # Others that have come so far wait, too: what is measured runs alone.
    print("ready", flush=True)
    sys.stdin.readline()
    model.to(DEVICE).train()
    weights = model
    if "compiled" in KINDS:
        model = torch.compile(model)
    if "adamw" in KINDS:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    gpu = DEVICE != "cpu"
    before, losses, gradients, begun = resident(), [], None, 0.0
    for step, tokens in enumerate(DataLoader(Text(weights.config.vocab_size), batch_size=SAMPLES)):
        if step == 1:
            if gpu:
                torch.cuda.synchronize()
            begun = time.perf_counter() if gpu else time.process_time()
        tokens = tokens.to(DEVICE)
        loss = model(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            gradients = seal(parameter.grad for parameter in weights.parameters())
        optimizer.step()
        losses.append(loss.detach())
    if gpu:
        torch.cuda.synchronize()
    seconds = (time.perf_counter() if gpu else time.process_time()) - begun
    peak = torch.cuda.max_memory_allocated() if gpu else resident() - before
    print(
        json.dumps(
            {
                "device": torch.cuda.get_device_name() if gpu else "cpu",
                "torch": torch.__version__,
                "peak_bytes": peak,
                "samples_per_s": SAMPLES * STEPS / seconds,
                "losses": [each.item() for each in losses],
                "gradients": gradients,
                "weights": seal(weights.parameters()),
            }
        )
    )


main()
