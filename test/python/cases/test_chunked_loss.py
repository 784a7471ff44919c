"""The loss in chunks: same losses, gradients and weights as the whole logits give, and no memory for these."""

import importlib.util
import os
import sys
import tempfile
import types
import unittest
from unittest import mock

import torch
import torch.nn.functional as F
from support import ROOT, probe, run
from torch import nn

sys.path.insert(0, os.path.join(ROOT, "python"))

from oomtune.hook.apply import chunked_cross_entropy
from oomtune.hook.apply.chunked_loss import ChunkedLoss
from oomtune.hook.apply.forward_wrappers import ForwardWrappers

V = 5000
WRAPPERS = ForwardWrappers()
#: Of a vocabulary of V in single precision: more than two chunks of the cases below.
chunked_cross_entropy.ELEMENTS = {"cpu": 20 * V, "cuda": 20 * V}


class Only:
    """The modules of one model, where the hook looks for those of the process."""

    def __init__(self, model):
        self._model = model

    def all(self):
        return self._model.modules()

    def compiled(self):
        return False


def refused(why):
    raise RuntimeError(why)


def knob_for(model):
    return ChunkedLoss(torch, Only(model), WRAPPERS, refused)


def among_two():
    """As a launcher tells one of two ranks."""
    return mock.patch.dict(os.environ, WORLD_SIZE="2")


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


def flat(o, y, **more):
    return F.cross_entropy(o.view(-1, V), y.view(-1), **more)


def scaled_in_place(o, y):
    rows = o.view(-1, V)
    o /= 3.0
    return F.cross_entropy(rows, y.view(-1))


def masked_in_place(o, y):
    rows = o.view(-1, V)
    o[..., :7] = -1e4
    return F.cross_entropy(rows, y.view(-1).clamp(min=10))


WEIGHT = torch.rand(V)
CHUNKED = {
    "mean": flat,
    "sum": lambda o, y: 0.01 * flat(o, y, reduction="sum"),
    "none": lambda o, y: (flat(o, y, reduction="none") * torch.arange(80)).sum(),
    "another number to ignore": lambda o, y: flat(o, y.clamp(min=0), ignore_index=7),
    "label smoothing": lambda o, y: nn.CrossEntropyLoss(label_smoothing=0.1)(o.view(-1, V), y.view(-1)),
    "label smoothing and class weights": lambda o, y: flat(o, y, weight=WEIGHT, label_smoothing=0.1),
    "class weights, sum": lambda o, y: 0.01 * flat(o, y, weight=WEIGHT, reduction="sum"),
    "classes second": lambda o, y: F.cross_entropy(o.transpose(1, 2), y),
    "classes second, of each": lambda o, y: F.cross_entropy(o.permute(0, 2, 1), y, reduction="none").mean(),
    "shifted": lambda o, y: F.cross_entropy(
        o[..., :-1, :].contiguous().view(-1, o.size(-1)), y[..., 1:].contiguous().view(-1)
    ),
    "shifted, reshaped": lambda o, y: F.cross_entropy(o[:, :-1].reshape(-1, o.shape[-1]), y[:, 1:].flatten()),
    "masked": lambda o, y: F.cross_entropy(o[y >= 0], y[y >= 0]),
    "divided by a number of the script's": lambda o, y: flat(o.float(), y, reduction="sum") / 77,
    "nothing but ignored rows": lambda o, y: flat(o, torch.full_like(y, -100)),
    "twice": lambda o, y: flat(o, y) + 0.5 * flat(o.detach(), y) + flat(o, y.clamp(min=3)),
    "scaled": lambda o, y: flat(o / 2, y) + flat(3 * o, y) + flat(o * 0.25, y),
    "softly capped": lambda o, y: flat(torch.tanh(o / 0.3) * 0.3, y),
    "softly capped, shifted, in single precision": lambda o, y: flat(
        ((o[:, :-1] / 0.3).tanh() * 0.3).float(), y[:, 1:].contiguous()
    ),
    "capped twice, and as it is": lambda o, y: flat(o.tanh().tanh() * 5, y) + flat(o, y),
    "softly capped, classes second": lambda o, y: F.cross_entropy((o.transpose(1, 2) / 0.3).tanh() * 0.3, y),
}
LEARNED = nn.Parameter(torch.tensor(0.4))
CAP = torch.tensor([0.3])
#: Scaled by tensors: of a head without a bias.
SCALED = {
    "a learned scale": lambda o, y: flat(o * LEARNED.exp(), y),
    "a learned scale first": lambda o, y: flat(LEARNED.exp() * o, y),
    "a learned temperature": lambda o, y: flat(o / LEARNED, y) + flat(o, y),
    "a learned scale of each chunk's own rows": lambda o, y: F.cross_entropy(
        (2 * o[:, :-1] * LEARNED).transpose(1, 2), y[:, 1:]
    ),
    "scaled twice, then capped": lambda o, y: flat(torch.tanh(CAP * o / LEARNED) * 0.5, y),
    "a scale of one element": lambda o, y: flat(o.float() * CAP, y),
}
WHOLE = {
    "argmax": lambda o, y: flat(o, y) + 0 * o.argmax(-1).sum(),
    "logsumexp": lambda o, y: flat(o, y) + (o.logsumexp(-1) ** 2).mean(),
    "add": lambda o, y: flat(o + 2, y),
    "mul": lambda o, y: flat(o * torch.ones(V), y),
    "multiply": lambda o, y: flat(torch.multiply(torch.tanh(o / 0.3), CAP), y),
    "div": lambda o, y: flat(torch.div(o, LEARNED), y),
    "div_": scaled_in_place,
    "__setitem__": masked_in_place,
    "log_softmax": lambda o, y: F.nll_loss(F.log_softmax(o, -1).view(-1, V), y.view(-1)),
    "Square": lambda o, y: Square.apply(o).mean(),
    "clone": lambda o, y: flat(o.clone(), y),
    "cross_entropy": lambda o, y: F.cross_entropy(o.view(-1, V), torch.full((80, V), 1 / V)),
}


def model_of(bias=True, dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, V, bias=bias)).to(dtype)


def batch(dtype=torch.float32):
    x, y = torch.randn(4, 20, 8, dtype=dtype), torch.randint(0, V, (4, 20))
    y[0, :5] = -100
    return x, y


def distance(one, other):
    """Of the largest number of `one`, the largest difference."""
    return ((one.double() - other.double()).abs().max() / one.double().abs().max().clamp(min=1e-30)).item()


class Losses(unittest.TestCase):
    def both(self, loss_of, prepare=lambda model: None, amp=False, times=1, **kind):
        """(loss, gradients, why whole) without and with the knob."""
        found = []
        for on in (False, True):
            model = model_of(**kind)
            prepare(model)
            knob = knob_for(model)
            knob.switch(on)
            x, y = batch(kind.get("dtype", torch.float32))
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
                loss = loss_of(model(x), y)
            for again in range(times):
                (loss * (0.7 + again)).backward(retain_graph=again + 1 < times)
            found.append((loss.detach(), [parameter.grad for parameter in model.parameters()], knob.unchunked()))
        return found

    def same(self, plain, chunked, within=1e-5, exact=None):
        """Within so much of each other; or, with `exact`, no further than torch itself is from that: some processors add products
        up in half precision."""
        self.assertEqual(plain[0].dtype, chunked[0].dtype)
        truths = [None] * (1 + len(plain[1])) if exact is None else [exact[0], *exact[1]]
        for one, other, truth in zip([plain[0], *plain[1]], [chunked[0], *chunked[1]], truths):
            self.assertEqual(one is None, other is None)
            if one is None or bool(one.isnan().all()):
                self.assertTrue(one is None or bool(other.isnan().all()))
                continue
            self.assertEqual(one.dtype, other.dtype)
            own = 0.0 if truth is None else distance(truth, one)
            self.assertLess(distance(one, other), max(within, own))

    def test_in_chunks_are_the_same(self):
        for name, loss_of in CHUNKED.items():
            with self.subTest(name):
                plain, chunked = self.both(loss_of)
                self.same(plain, chunked)
                self.assertIsNone(chunked[2])

    def test_scaled_by_a_tensor_are_the_same_with_the_gradient_of_that(self):
        def learn(model):
            LEARNED.grad = None
            model.learned = LEARNED

        def learn_with_a_frozen_head(model):
            model[2].requires_grad_(False)
            learn(model)

        for prepare in (learn, learn_with_a_frozen_head):
            for name, loss_of in SCALED.items():
                with self.subTest(name, how=prepare.__name__):
                    plain, chunked = self.both(loss_of, prepare, bias=False)
                    self.same(plain, chunked)
                    self.assertIsNone(chunked[2])

    def test_of_anything_else_are_those_of_the_real_logits_and_said_to_be(self):
        for name, loss_of in WHOLE.items():
            with self.subTest(name):
                plain, chunked = self.both(loss_of)
                self.same(plain, chunked)
                self.assertIn("(%s)" % name, chunked[2])

    def test_without_bias_with_frozen_weights_and_backward_twice(self):
        def freeze(model):
            model[2].weight.requires_grad_(False)

        def freeze_all_but_the_head(model):
            model[0].requires_grad_(False)

        for more in ({"bias": False}, {"prepare": freeze}, {"prepare": freeze_all_but_the_head}, {"times": 2}):
            with self.subTest(more):
                plain, chunked = self.both(flat, **more)
                self.same(plain, chunked)
                self.assertIsNone(chunked[2])

    def test_in_other_precisions(self):
        cases = (
            (1e-12, flat, {"dtype": torch.float64}),
            (2e-2, flat, {"dtype": torch.bfloat16}),
            (2e-2, lambda o, y: flat(o.float(), y), {"dtype": torch.bfloat16}),
            (2e-2, flat, {"amp": True}),
            (2e-2, lambda o, y: flat(o.float(), y), {"amp": True}),
        )
        for within, loss_of, more in cases:
            with self.subTest(more):
                plain, chunked = self.both(loss_of, **more)
                self.same(plain, chunked, within, exact=self.both(loss_of)[0] if "amp" in more else None)
                self.assertIsNone(chunked[2])

    def test_a_chunk_is_whole_tiles_of_what_may_be_in_memory(self):
        rows = chunked_cross_entropy.chunk_rows
        self.assertEqual(rows(4096, 333), 256)
        self.assertEqual(rows(4096, 10**6), 1024)
        self.assertEqual(rows(300, 10**6), 75)
        self.assertEqual(rows(4096, 1), 16)

    def test_the_whole_logits_are_never_in_memory(self):
        model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, V))
        knob = knob_for(model)
        made = []
        original = F.linear

        def linear(inputs, weight, bias=None):
            output = original(inputs, weight, bias)
            made.append(output.numel())
            return output

        x, y = batch()
        for on, most in ((False, 80 * V), (True, 20 * V)):
            made.clear()
            knob.switch(on)
            F.linear = linear
            try:
                flat(model(x), y).backward()
            finally:
                F.linear = original
            self.assertEqual(max(made), most)

    def test_logits_of_earlier_weights_are_refused(self):
        model = model_of()
        knob = knob_for(model)
        knob.switch(True)
        x, y = batch()
        output = model(x)
        flat(output, y).backward()
        with torch.no_grad():
            model[2].weight.sub_(0.1 * model[2].weight.grad)
        with self.assertRaisesRegex(RuntimeError, r"\(argmax\) after its weights have changed"):
            output.argmax(-1)

    def test_evaluation_and_other_models_have_real_logits(self):
        model = model_of()
        knob = knob_for(model)
        knob.switch(True)
        x, _ = batch()
        with torch.no_grad():
            self.assertIs(type(model(x)), torch.Tensor)
        model.eval()
        self.assertIs(type(model(x)), torch.Tensor)
        model.train()
        self.assertIsNot(type(model(x)), torch.Tensor)
        knob.switch(False)
        self.assertIs(type(model(x)), torch.Tensor)

    def test_only_a_plain_large_head_is_one(self):
        class Other(nn.Linear):
            pass

        big = nn.Linear(4, V)
        self.assertTrue(knob_for(nn.Sequential(nn.Linear(4, 4), big)).possible())
        with among_two():
            self.assertFalse(knob_for(nn.Sequential(big)).possible())
        taken = nn.Sequential(nn.Linear(4, V), nn.Linear(V, 4))
        for model in (nn.Linear(4, 1000), Other(4, V), nn.Sequential(nn.Linear(4, V), big), taken):
            self.assertFalse(knob_for(nn.Sequential(model)).possible(), model)

    def test_why_a_large_head_is_left_alone_is_told(self):
        class Other(nn.Linear):
            pass

        plain = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, V))
        self.assertIsNone(knob_for(plain).why_not())
        with among_two():
            self.assertIsNone(knob_for(nn.Sequential(nn.Linear(4, 1000))).why_not(), "its logits are small")
            self.assertIn("several ranks", knob_for(plain).why_not())
        told = {
            "no plain torch.nn.Linear (Other)": knob_for(nn.Sequential(Other(4, V))),
            "another layer takes": knob_for(nn.Sequential(nn.Linear(4, V), nn.Linear(V, 4))),
            "2 layers have as many": knob_for(nn.Sequential(nn.Linear(4, V), nn.Linear(4, V))),
        }
        for words, knob in told.items():
            self.assertIn(words, knob.why_not())
        sys.modules["cut_cross_entropy"] = types.ModuleType("cut_cross_entropy")
        try:
            self.assertIn("cut_cross_entropy is imported", knob_for(plain).why_not())
        finally:
            del sys.modules["cut_cross_entropy"]
        compiled = Only(plain)
        compiled.compiled = lambda: True
        self.assertIn("the model is compiled", ChunkedLoss(torch, compiled, WRAPPERS, refused).why_not())

    def test_a_search_is_told_why_before_its_first_probe(self):
        script = """
import torch
from torch import nn
from torch.utils.data import DataLoader
class Other(nn.Linear): pass
model = nn.Sequential(nn.Linear(4, 4), Other(4, 5000))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(torch.randn(8, 4), batch_size=4):
    optimizer.zero_grad(); model(x).mean().backward(); optimizer.step()
"""
        loop = run(script, "probe").one("loop")
        self.assertFalse(loop["can"]["chunked_loss"])
        self.assertEqual(loop["why_not"]["chunked_loss"], "the last layer is no plain torch.nn.Linear (Other)")


LOOP = """
import sys, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
V, T, H = 5000, 16, 12
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(V, H)
        self.block = nn.Sequential(nn.Linear(H, 4 * H), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * H, H))
        self.lm_head = nn.Linear(H, V, bias=False)
        self.lm_head.weight = self.wte.weight
    def forward(self, x):
        x = self.wte(x)
        return self.lm_head(x + self.block(x))
model, loss_of = Model(), nn.CrossEntropyLoss(label_smoothing=0.05)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for x, in DataLoader(TensorDataset(torch.randint(0, V, (32, T + 1))), batch_size=8, shuffle=True):
    logits = model(x[:, :-1])
    loss = loss_of(logits.view(-1, V), x[:, 1:].reshape(-1))
    optimizer.zero_grad(); loss.backward(); optimizer.step()
%s
model.eval()
assert type(model(x[:, :-1])) is torch.Tensor
torch.save({"loss": loss.detach(), **model.state_dict()}, "out.pt")
"""
INSIDE = (
    LOOP.replace("forward(self, x)", "forward(self, x, y)")
    .replace(
        "        return self.lm_head(x + self.block(x))",
        "        logits = self.lm_head(x + self.block(x))\n"
        "        return logits, nn.functional.cross_entropy(logits.view(-1, V), y.reshape(-1))",
    )
    .replace("logits = model(x[:, :-1])", "logits, loss = model(x[:, :-1], x[:, 1:])")
    .replace("    loss = loss_of(logits.view(-1, V), x[:, 1:].reshape(-1))\n", "")
    .replace("type(model(x[:, :-1]))", "type(model(x[:, :-1], x[:, 1:])[0])")
)
ON = {"OOMTUNE_CHUNKED_LOSS": 1, "OOMTUNE_HOOK_KNOBS": "chunked_loss"}


class Scripts(unittest.TestCase):
    def trained(self, script, **env):
        with tempfile.TemporaryDirectory() as folder:
            result = run(script, "apply", cwd=folder, **env)
            self.assertEqual(result.status, 0, result.errors)
            return torch.load(folder + "/out.pt")

    def close(self, plain, chunked):
        self.assertEqual(sorted(plain), sorted(chunked))
        for name, value in plain.items():
            scale = value.abs().max().clamp(min=1e-3)
            self.assertLess(((value - chunked[name]).abs().max() / scale).item(), 1e-5, name)

    def test_a_loop_with_tied_weights_trains_to_the_same(self):
        plain = self.trained(LOOP % "")
        self.close(plain, self.trained(LOOP % "", **ON))
        cut = {"OOMTUNE_MICRO_BATCH": 2, "OOMTUNE_ACCUMULATION": 4, "OOMTUNE_CUT": "loader"}
        cut["OOMTUNE_HOOK_KNOBS"] = "micro_batch,accumulation"
        both = dict(cut, OOMTUNE_CHUNKED_LOSS=1, OOMTUNE_HOOK_KNOBS="micro_batch,accumulation,chunked_loss")
        self.close(self.trained(LOOP % "", **cut), self.trained(LOOP % "", **both))

    def test_a_cut_call_needs_no_logits_either(self):
        """Its micro-batches' logits are joined by what they are made of."""
        cut = {"OOMTUNE_MICRO_BATCH": 2, "OOMTUNE_ACCUMULATION": 4, "OOMTUNE_CUT": "model"}
        knobs = "micro_batch,accumulation,chunked_loss"
        capped = LOOP.replace(
            "self.lm_head(x + self.block(x))", "0.5 * torch.tanh(self.lm_head(x + self.block(x)) / 0.5)"
        )
        learned = LOOP.replace(
            "self.lm_head(x + self.block(x))", "self.scale.exp() * self.lm_head(x + self.block(x))"
        ).replace(
            "        self.lm_head.w", "        self.scale = nn.Parameter(torch.tensor(0.3))\n        self.lm_head.w"
        )
        scripts = {
            "the loss outside": LOOP,
            "the loss inside": INSIDE,
            "softly capped logits": capped,
            "a learned scale": learned,
        }
        for name, script in scripts.items():
            with self.subTest(name):
                text = (script % "").replace("nn.Dropout(0.1)", "nn.Identity()")
                cut_only = self.trained(text, **cut, OOMTUNE_HOOK_KNOBS="micro_batch,accumulation")
                self.close(self.trained(text), cut_only)
                self.close(cut_only, self.trained(text, **cut, OOMTUNE_CHUNKED_LOSS=1, OOMTUNE_HOOK_KNOBS=knobs))
                orders = [probe(2, accumulation=4, batch=8, chunked_loss=True)]
                result = run(text, "probe", orders)
                self.assertEqual([m["unchunked"] for m in result.of("measured")], [None], result.errors)

    def test_a_probe_tells_whether_it_is_in_chunks(self):
        for more, why in (("", None), ("    accuracy = (logits.argmax(-1) == x[:, 1:]).float().mean()", "(argmax)")):
            body = (LOOP % "").replace("    optimizer.zero_grad()", more + "\n    optimizer.zero_grad()")
            result = run(body, "probe", [probe(4), probe(4, chunked_loss=True), probe(4)])
            self.assertEqual(result.status, 0, result.errors)
            self.assertTrue(result.one("loop")["can"]["chunked_loss"])
            told = [message["unchunked"] for message in result.of("measured")]
            self.assertEqual([told[0], told[2]], [None, None])
            self.assertEqual(told[1] is None, why is None, told)
            self.assertIn(why or "", told[1] or "")

    def test_logits_read_after_the_step_end_the_job_with_a_reason(self):
        result = run(LOOP % "    if loss > 0: logits.argmax(-1)", "apply", **ON)
        self.assertEqual(result.status, 1)
        self.assertEqual(result.one("goodbye")["reason"], "unchunked")
        self.assertIn("uses the logits (argmax) after its weights have changed", result.errors)
        self.assertIn("--chunked-loss off", result.errors)


RANKS = (
    LOOP.replace("nn.Dropout(0.1)", "nn.Identity()")
    .replace(
        "torch.manual_seed(0)",
        "import torch.distributed as dist\ndist.init_process_group('gloo')\ntorch.manual_seed(0)",
    )
    .replace("Model(), nn.Cross", "nn.parallel.DistributedDataParallel(Model()%s), nn.Cross")
    .replace(
        "optimizer = ",
        """calls = []
def exchange(state, bucket):
    calls.append(1)
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0] / 2)
model.register_comm_hook(None, exchange)
optimizer = """,
    )
    .replace("x, in DataLoader(", "batch in DataLoader(")
    .replace("    logits = model", "    x = batch[0][dist.get_rank()::2]\n    logits = model")
    .replace("%s\nmodel.eval()", "model.eval()")
    .replace("loss.detach(), **", 'loss.detach(), "exchanges": torch.tensor(float(len(calls))), **')
    .replace('"out.pt"', '"out.pt" if dist.get_rank() == 0 else "other.pt"')
)


@unittest.skipUnless(torch.distributed.is_available(), "this torch has no torch.distributed")
class Ranks(unittest.TestCase):
    trained, close = Scripts.trained, Scripts.close

    def test_ranks_exchange_the_gradients_once_and_train_to_the_same(self):
        plain = self.trained(RANKS % "", ranks=2)
        self.close(plain, self.trained(RANKS % "", ranks=2, **ON))
        cut = {"OOMTUNE_MICRO_BATCH": 2, "OOMTUNE_ACCUMULATION": 4, "OOMTUNE_CUT": "model", "OOMTUNE_CHUNKED_LOSS": 1}
        self.close(
            plain, self.trained(RANKS % "", ranks=2, **cut, OOMTUNE_HOOK_KNOBS="micro_batch,accumulation,chunked_loss")
        )

    def test_a_probe_of_ranks_is_in_chunks(self):
        result = run(RANKS % "", "probe", [probe(4, chunked_loss=True)], ranks=2)
        self.assertEqual([m["unchunked"] for m in result.of("measured")], [None, None], result.errors)

    def test_ranks_that_look_into_the_logits_are_left_alone_with_the_reason(self):
        loops = run(RANKS % ", find_unused_parameters=True", "probe", ranks=2).of("loop")
        self.assertEqual([loop["can"]["chunked_loss"] for loop in loops], [False, False])
        self.assertIn("with find_unused_parameters", loops[0]["why_not"]["chunked_loss"])


TRANSFORMERS = """
import torch, transformers
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
V = 5000
def gpt2():
    config = transformers.GPT2Config(vocab_size=V, n_positions=32, n_embd=24, n_layer=2, n_head=2)
    return transformers.GPT2LMHeadModel(config)
def llama():
    config = transformers.LlamaConfig(vocab_size=V, hidden_size=24, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=32, tie_word_embeddings=False)
    return transformers.LlamaForCausalLM(config)
def lora():
    return get_peft_model(llama(), LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
def small(kind, config, **more):
    sizes = dict(vocab_size=V, hidden_size=24, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2)
    return kind(config(**sizes, num_key_value_heads=2, max_position_embeddings=32, pad_token_id=0, **more))
def gemma2():
    return small(transformers.Gemma2ForCausalLM, transformers.Gemma2Config, head_dim=12, final_logit_softcapping=0.5,
        attn_implementation="eager")
def cohere():
    return small(transformers.CohereForCausalLM, transformers.CohereConfig, logit_scale=0.25)
def granite():
    return small(transformers.GraniteForCausalLM, transformers.GraniteConfig, logits_scaling=8.0)
def bert():
    config = transformers.BertConfig(vocab_size=V, hidden_size=24, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=32)
    return transformers.BertForMaskedLM(config)
model = {make}()
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
found = {{}}
data = TensorDataset(torch.randint(0, V, (16, 12)))
for step, (ids,) in enumerate(DataLoader(data, batch_size=4)):
    labels = ids.clone(); labels[0, :5] = -100
    more = dict(num_items_in_batch=torch.tensor(50)) if step % 2 and {items} else {{}}
    if step == 3 and {items}:
        more["shift_labels"] = torch.nn.functional.pad(labels, (0, 1), value=-100)[..., 1:].contiguous()
    output = model(input_ids=ids, labels=labels, **more)
    optimizer.zero_grad(); output.loss.backward(); optimizer.step()
    found["loss %d" % step] = output.loss.detach()
torch.save({{**found, **model.state_dict()}}, "out.pt")
"""


@unittest.skipUnless(importlib.util.find_spec("transformers"), "transformers and peft are not installed for this torch")
class Transformers(unittest.TestCase):
    trained, close = Scripts.trained, Scripts.close

    def test_models_of_transformers_train_to_the_same(self):
        for make in ("gpt2", "llama", "lora", "bert"):
            with self.subTest(make):
                script = TRANSFORMERS.format(make=make, items=make in ("gpt2", "llama"))
                self.close(self.trained(script), self.trained(script, **ON))
        self.chunked("gpt2", True)

    def test_capped_and_scaled_logits_train_to_the_same(self):
        for make in ("gemma2", "cohere", "granite"):
            with self.subTest(make):
                script = TRANSFORMERS.format(make=make, items=False)
                self.close(self.trained(script), self.trained(script, **ON))
                self.chunked(make, False)

    def chunked(self, make, items):
        result = run(TRANSFORMERS.format(make=make, items=items), "probe", [probe(2, chunked_loss=True, steps=2)])
        self.assertEqual([m["unchunked"] for m in result.of("measured")], [None], result.errors)


if __name__ == "__main__":
    unittest.main()
