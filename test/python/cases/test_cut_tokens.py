"""Micro-batches counted in tokens: as many samples as fit, each without the padding that its own longest does not need."""

import unittest

import torch
from cut_case import CutCase
from torch import nn

try:
    import transformers
except ImportError:
    transformers = None

WIDTH = 24


def lengths(count=64):
    """Long-tailed, as those of texts are; one sample is as long as any."""
    found = (3 + torch.rand(count).pow(3) * (WIDTH - 3)).long()
    found[0] = WIDTH
    return found


def padded(left=False):
    """Ids, and a mask with ones where they count."""
    ids = torch.randint(1, 50, (64, WIDTH))
    places = torch.arange(WIDTH)
    mask = (places < lengths()[:, None]).long()
    if left:
        mask = mask.flip(1)
    return ids * mask, mask


class Tokens(CutCase):
    def spied(self, loss):
        """The loss, and the shape of each call of the model's first layer."""
        seen = []

        def spying(model, given):
            layers = getattr(model, "encoder", model)
            layer = next(each for each in layers.modules() if isinstance(each, nn.Embedding))
            spy = _Spy(layer, seen)
            return _Kept(loss(model, given), spy)

        return spying, seen

    def shapes(self, make, loss, inputs, tolerance=1e-9, tokens=4 * WIDTH, micro=4, **more):
        """Shapes of the calls of the embedding, when the weights are known to be those of the uncut run."""
        spying, seen = self.spied(loss)
        bare = self.train(make, loss, inputs, **more)
        tuned = self.train(make, spying, inputs, micro, tokens=tokens, **more)
        self.assertGreater(self.cut.count, 0)
        for one, other in zip(bare, tuned):
            self.assertLess(((one - other).norm() / one.norm().clamp_min(1e-6)).item(), tolerance)
        return seen

    def narrow(self, seen):
        """Calls of training with less than the batch's width."""
        return [shape for shape in seen if shape[1] < WIDTH and shape[0] > 2]

    def test_a_classifier_with_a_mask(self):
        seen = self.shapes(Pooled, lambda m, x: m(*x).pow(2).mean(), padded)
        self.assertTrue(self.narrow(seen))
        self.assertLessEqual(max(rows * width for rows, width in seen if rows > 2), 4 * WIDTH)
        self.assertEqual(self.warned, [])

    def test_outputs_come_in_the_order_of_the_samples(self):
        torch.manual_seed(0)
        model = Pooled()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = padded()
        whole = model(*x)
        self.cut.engage(4, 64, tokens=4 * WIDTH)
        cut = model(*x)
        self.cut.release()
        self.assertGreater(self.cut.count, 0)
        self.assertLess((whole - cut).abs().max().item(), 1e-12)
        del optimizer

    def test_a_padding_mask_of_torch(self):
        def inputs():
            ids, mask = padded()
            return ids, mask == 0

        seen = self.shapes(Encoder, lambda m, x: m(x[0], src_key_padding_mask=x[1]).pow(2).mean(), inputs)
        self.assertTrue(self.narrow(seen))

    def test_lengths_in_place_of_a_mask(self):
        def inputs():
            ids, mask = padded()
            return ids, mask.sum(1)

        seen = self.shapes(ByLength, lambda m, x: m(x[0], lengths=x[1]).pow(2).mean(), inputs)
        self.assertTrue(self.narrow(seen))

    def test_a_mean_over_the_next_tokens(self):
        """At first all samples have about the same loss, so that it does not show whether a sample's first token counts."""

        def inputs():
            ids, mask = padded()
            return ids, mask, ids.masked_fill(mask == 0, -100)

        for aligned in (False, True):
            self.same(lambda aligned=aligned: Language(aligned), lambda m, x: m(*x), inputs, 4)
        self.assertTrue(self.narrow(self.shapes(Language, lambda m, x: m(*x), inputs)))

    def test_no_mask_means_equal_rows(self):
        seen = self.shapes(Unmasked, lambda m, x: m(x[0]).pow(2).mean(), padded)
        self.assertEqual(self.narrow(seen), [])
        self.assertIn("equal_rows", self.warned)

    def test_padding_that_counts_stays(self):
        """A mean over all places, padding among them, changes with their number."""
        seen = self.shapes(lambda: Pooled(wrong=True), lambda m, x: m(*x).pow(2).mean(), padded)
        self.assertEqual(self.narrow(seen), [])
        self.assertIn("untrimmed", self.warned)

    def test_an_output_for_each_token_that_the_script_reads_stays_whole(self):
        def loss(model, x):
            per_token = model(*x)
            self.assertEqual(per_token.shape[:2], (64, WIDTH))
            return per_token.pow(2).mean()

        seen = self.shapes(Tagger, loss, padded)
        self.assertEqual(self.narrow(seen), [])
        self.assertIn("untrimmed", self.warned)

    def test_a_batch_that_is_narrow_has_more_rows_in_a_micro_batch(self):
        """Not left out, but counted: no batch pads further than its own longest sample."""

        def inputs():
            ids, mask = padded()
            return ids[:, : WIDTH // 2], torch.ones_like(mask)[:, : WIDTH // 2]

        seen = self.shapes(Pooled, lambda m, x: m(*x).pow(2).mean(), inputs)
        self.assertIn((8, WIDTH // 2), seen)

    def test_groups_hold_each_sample_once_and_no_more_than_fits(self):
        from oomtune.hook.cut.token_limit import TokenLimit

        generator = torch.Generator().manual_seed(1)
        for _ in range(50):
            count = int(torch.randint(1, 200, (1,), generator=generator))
            given = torch.randint(1, 512, (count,), generator=generator).tolist()
            limit = TokenLimit(2048)
            groups = limit.groups(given)
            self.assertEqual(sorted(row for group in groups for row in group), list(range(count)))
            for group in groups:
                self.assertLessEqual(len(group), limit.rows(max(given[row] for row in group)))

    def test_no_other_groups_of_neighbours_take_less_time(self):
        from oomtune.hook.cut.token_limit import BEGINNING, TokenLimit

        def time(lengths, groups):
            return sum(len(group) * max(lengths[row] for row in group) + BEGINNING for group in groups)

        generator = torch.Generator().manual_seed(1)
        for count in (1, 2, 7, 10):
            given = sorted(torch.randint(1, 1024, (count,), generator=generator).tolist(), reverse=True)
            limit = TokenLimit(3000)
            least = float("inf")
            for cuts in range(2 ** (count - 1)):
                ends = [at + 1 for at in range(count - 1) if cuts >> at & 1]
                groups = [list(range(*span)) for span in zip([0, *ends], [*ends, count])]
                if all(len(group) <= limit.rows(given[group[0]]) for group in groups):
                    least = min(least, time(given, groups))
            self.assertEqual(time(given, limit.groups(given)), least)

    @unittest.skipIf(transformers is None, "this Python has no transformers")
    def test_gpt2(self):
        def inputs():
            ids, mask = padded()
            return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}

        seen = self.shapes(gpt2, lambda m, x: m(**x).loss, inputs, steps=4, tolerance=1e-6)
        self.assertTrue(self.narrow(seen))
        self.assertEqual(self.warned, [])

    @unittest.skipIf(transformers is None, "this Python has no transformers")
    def test_gpt2_whose_logits_are_read(self):
        def inputs():
            ids, mask = padded()
            return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}

        def loss(model, x):
            output = model(**x)
            return output.loss + 0.1 * output.logits.pow(2).mean()

        self.assertEqual(self.narrow(self.shapes(gpt2, loss, inputs, tolerance=1e-6)), [])

    @unittest.skipIf(transformers is None, "this Python has no transformers")
    def test_labels_in_the_padding_stay(self):
        """A loss over padding, too, is no mean over what is left without it."""

        def inputs():
            ids, mask = padded()
            return {"input_ids": ids, "attention_mask": mask, "labels": ids}

        self.assertEqual(self.narrow(self.shapes(gpt2, lambda m, x: m(**x).loss, inputs, tolerance=1e-6)), [])

    @unittest.skipIf(transformers is None, "this Python has no transformers")
    def test_bert(self):
        def inputs(left=False):
            ids, mask = padded(left)
            return {
                "input_ids": ids,
                "attention_mask": mask,
                "token_type_ids": torch.zeros_like(ids),
                "labels": torch.randint(3, (64,)),
            }

        seen = self.shapes(bert, lambda m, x: m(**x).loss, inputs, steps=4, tolerance=1e-6)
        self.assertTrue(self.narrow(seen))
        self.assertEqual(self.warned, [])
        # Its positions count from the left, padding included.
        seen = self.shapes(bert, lambda m, x: m(**x).loss, lambda: inputs(True), steps=4, tolerance=1e-6)
        self.assertEqual(self.narrow(seen), [])
        self.assertIn("untrimmed", self.warned)

    @unittest.skipIf(transformers is None, "this Python has no transformers")
    def test_t5(self):
        def inputs():
            ids, mask = padded()
            labels = torch.randint(1, 50, (64, 9))
            labels[torch.arange(9) >= torch.randint(2, 10, (64, 1))] = -100
            return {"input_ids": ids, "attention_mask": mask, "labels": labels}

        seen = self.shapes(t5, lambda m, x: m(**x).loss, inputs, steps=4, tolerance=1e-6)
        self.assertTrue(self.narrow(seen))

    @unittest.skipIf(transformers is None, "this Python has no transformers")
    def test_in_single_precision(self):
        def make():
            torch.set_default_dtype(torch.float32)
            return gpt2()

        def inputs():
            ids, mask = padded()
            return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}

        self.assertTrue(self.narrow(self.shapes(make, lambda m, x: m(**x).loss, inputs, steps=4, tolerance=1e-5)))


class _Spy:
    """Notes the shape of what a layer is called with, until it is removed. (No hook: what that gathers is told of.)"""

    def __init__(self, layer, seen):
        forward = layer.forward
        layer.forward = lambda ids: (seen.append(tuple(ids.shape)), forward(ids))[1]
        self._layer = layer

    def remove(self):
        del self._layer.forward


class _Kept:
    """A loss whose model is spied on until its backward pass is over."""

    def __init__(self, loss, spy):
        self._loss, self._spy = loss, spy

    def backward(self):
        self._loss.backward()
        self._spy.remove()


class Pooled(nn.Module):
    def __init__(self, wrong=False):
        super().__init__()
        self.table, self.out, self.wrong = nn.Embedding(50, 8), nn.Linear(8, 3), wrong

    def forward(self, ids, attention_mask):
        given = torch.tanh(self.table(ids)) * attention_mask[:, :, None]
        count = ids.shape[1] if self.wrong else attention_mask.sum(1, keepdim=True)
        return self.out(given.sum(1) / count)


class ByLength(Pooled):
    def forward(self, ids, lengths):
        return super().forward(ids, (torch.arange(ids.shape[1]) < lengths[:, None]).to(self.out.weight.dtype))


class Unmasked(Pooled):
    def forward(self, ids):
        return super().forward(ids, (ids != 0).to(self.out.weight.dtype))


class Tagger(Pooled):
    def forward(self, ids, attention_mask):
        return self.out(torch.tanh(self.table(ids))) * attention_mask[:, :, None]


class Language(nn.Module):
    """`aligned`: the labels are those of the next token already."""

    def __init__(self, aligned=False):
        super().__init__()
        self.table, self.out, self.aligned = nn.Embedding(50, 8), nn.Linear(8, 50), aligned
        nn.init.normal_(self.out.weight, std=0.004)
        nn.init.zeros_(self.out.bias)

    def forward(self, ids, attention_mask, labels):
        logits = self.out(self.table(ids))
        if not self.aligned:
            logits, labels = logits[:, :-1], labels[:, 1:]
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.out = nn.Linear(8, 3)

    def forward(self, ids, src_key_padding_mask):
        given = self.layer(self.table(ids), src_key_padding_mask=src_key_padding_mask)
        return self.out(given.masked_fill(src_key_padding_mask[:, :, None], 0).sum(1))


def gpt2():
    plain = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 1, "eos_token_id": 1}
    config = transformers.GPT2Config(vocab_size=50, n_positions=WIDTH, n_embd=16, n_layer=2, n_head=2, **plain)
    return transformers.GPT2LMHeadModel(config)


def bert():
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=WIDTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=3,
    )
    return transformers.BertForSequenceClassification(config)


def t5():
    config = transformers.T5Config(
        vocab_size=50,
        d_model=16,
        d_kv=8,
        d_ff=16,
        num_layers=1,
        num_heads=2,
        dropout_rate=0.0,
        decoder_start_token_id=0,
    )
    return transformers.T5ForConditionalGeneration(config)


if __name__ == "__main__":
    unittest.main()
