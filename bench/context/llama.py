"""One sequence a step through a Llama-like model with adapters (LoRA, rank 32) in bf16, as a fine-tuning script would.

Its weights are random, since what they are does not matter to memory. `--weights 4bit` keeps the frozen ones in four bits, two in a byte with
a scale for each 64, as quantised fine-tuning does: made here, so that no library has to be installed.
"""

import argparse

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--seq-len", type=int, default=2048)
parser.add_argument("--weights", choices=["bf16", "4bit"], default="bf16")
parser.add_argument("--size", choices=["8b", "toy"], default="8b")
parser.add_argument("--device", default="cuda")
parser.add_argument("--steps", type=int, default=12)
arguments = parser.parse_args()

BLOCK = 64
SIZES = {
    "8b": dict(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, vocab_size=128256),
    "toy": dict(hidden_size=128, intermediate_size=448, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, vocab_size=256),
}


class Dequantised(torch.autograd.Function):
    """The product with a weight that exists in full only while it is used: it is made anew in backward, not kept."""

    @staticmethod
    def forward(ctx, rows, packed, scales, shape):
        ctx.save_for_backward(packed, scales)
        ctx.shape = shape
        return rows @ weight_of(packed, scales, shape, rows.dtype).t()

    @staticmethod
    def backward(ctx, grad):
        return grad @ weight_of(*ctx.saved_tensors, ctx.shape, grad.dtype), None, None, None


def weight_of(packed, scales, shape, dtype):
    weight = torch.empty((packed.numel(), 2), dtype=dtype, device=packed.device)
    weight[:, 0] = packed & 15
    weight[:, 1] = packed >> 4
    weight.sub_(7.5).view(-1, BLOCK).mul_(scales[:, None].to(dtype))
    return weight.view(shape)


class FourBit(nn.Linear):
    """A frozen linear layer of half a byte a weight. A Linear by class, so that adapters find it."""

    def __init__(self, inputs, outputs, device):
        super().__init__(inputs, outputs, bias=False, device="meta")
        self.weight = None
        self.shape = (outputs, inputs)
        self.register_buffer("packed", torch.randint(0, 256, (inputs * outputs // 2,), dtype=torch.uint8, device=device))
        self.register_buffer("scales", torch.full((inputs * outputs // BLOCK,), 0.003, dtype=torch.float16, device=device))

    def forward(self, rows):
        return Dequantised.apply(rows, self.packed, self.scales, self.shape)


def build():
    config = LlamaConfig(**SIZES[arguments.size], max_position_embeddings=1 << 20, attn_implementation="sdpa", use_cache=False)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    if arguments.weights == "4bit":
        for name, layer in list(model.named_modules()):
            if isinstance(layer, nn.Linear) and name != "lm_head":
                parent, _, own = name.rpartition(".")
                setattr(model.get_submodule(parent), own, FourBit(layer.in_features, layer.out_features, arguments.device))
    # What is left on "meta" is made on the device, one tensor at a time: nothing is ever there twice.
    for module in model.modules():
        for name, old in list(module._parameters.items()):
            if old is not None:
                new = torch.empty(old.shape, dtype=old.dtype, device=arguments.device)
                nn.init.ones_(new) if new.dim() == 1 else nn.init.normal_(new, std=0.02)
                module._parameters[name] = nn.Parameter(new, requires_grad=False)
    with torch.device(arguments.device):
        model.model.rotary_emb = type(model.model.rotary_emb)(config)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    adapters = LoraConfig(r=32, lora_alpha=64, target_modules=targets, task_type="CAUSAL_LM")
    if arguments.weights == "4bit":
        return adapted(model, targets)
    return get_peft_model(model, adapters, autocast_adapter_dtype=False)


class Adapted(nn.Module):
    """A frozen layer and its adapter, as peft has them."""

    def __init__(self, frozen, rank=32, scale=2.0):
        super().__init__()
        self.frozen, self.scale = frozen, scale
        outputs, inputs = frozen.shape
        self.down = nn.Linear(inputs, rank, bias=False, device=arguments.device)
        self.up = nn.Linear(rank, outputs, bias=False, device=arguments.device)
        nn.init.zeros_(self.up.weight)

    def forward(self, rows):
        return self.frozen(rows) + self.scale * self.up(self.down(rows))


def adapted(model, targets):
    for name, layer in list(model.named_modules()):
        if isinstance(layer, FourBit) and name.rpartition(".")[2] in targets:
            parent, _, own = name.rpartition(".")
            setattr(model.get_submodule(parent), own, Adapted(layer))
    return model


torch.manual_seed(0)
model = build()
model.train()
optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=1e-4)
words = SIZES[arguments.size]["vocab_size"]
for _ in range(arguments.steps):
    ids = torch.randint(0, words, (1, arguments.seq_len), device=arguments.device)
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("trained on %d tokens a step, loss %.3f" % (arguments.seq_len, loss.item()))
