"""python data.py FOLDER MAKER [ARGUMENT ...]: small made-up data in the form that a program reads, and at last a file `made`."""

import gzip
import json
import os
import pickle
import struct
import sys

import numpy as np

MAKERS = {}


def maker(make):
    MAKERS[make.__name__.replace("_", "-")] = make
    return make


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb" if isinstance(data, bytes) else "w") as file:
        file.write(data)


def text(count, seed=0):
    """Lines of words that follow one another by a rule, so that there is something to learn."""
    random = np.random.default_rng(seed)
    words = ["%s%s" % (a, b) for a in "the of and to in is on by it or be at as an we us if so do go".split() for b in ["", "n", "st", "ring", "less"]]
    lines = []
    for _ in range(count):
        at = int(random.integers(len(words)))
        line = []
        for _ in range(int(random.integers(6, 24))):
            at = (at * 7 + int(random.integers(5))) % len(words)
            line.append(words[at])
        lines.append(" ".join(line) + " .")
    return lines


def jpeg(path, size, seed):
    from PIL import Image

    random = np.random.default_rng(seed)
    coarse = random.integers(0, 255, (8, 8, 3), dtype=np.uint8)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    Image.fromarray(coarse).resize((size, size), Image.BILINEAR).save(path, quality=80)


def linked(folder, name, count, source):
    """`count` names of a few real files."""
    os.makedirs(folder, exist_ok=True)
    for index in range(count):
        os.link(source[index % len(source)], os.path.join(folder, name % index))


@maker
def mnist(folder):
    """MNIST's four files, as torchvision keeps them."""
    random = np.random.default_rng(0)
    for part, size in [("train", 60000), ("t10k", 10000)]:
        images = random.integers(0, 255, (size, 28, 28), dtype=np.uint8)
        labels = random.integers(0, 10, size, dtype=np.uint8)
        for name, data, shape in [("images-idx3", images, (size, 28, 28)), ("labels-idx1", labels, (size,))]:
            header = struct.pack(">HBB", 0, 8, len(shape)) + struct.pack(">%dI" % len(shape), *shape)
            path = os.path.join(folder, "MNIST", "raw", "%s-%s-ubyte" % (part, name))
            write(path, header + data.tobytes())
            write(path + ".gz", gzip.compress(b""))


@maker
def cifar(folder, kind="10", count=5000):
    """CIFAR-10's or CIFAR-100's pickles."""
    random = np.random.default_rng(0)
    count = int(count)

    def batch(size):
        data = {"data": random.integers(0, 255, (size, 3072), dtype=np.uint8)}
        data["labels"] = data["fine_labels"] = random.integers(0, int(kind), size).tolist()
        return pickle.dumps(data)

    if kind == "10":
        for index in range(1, 6):
            write(os.path.join(folder, "cifar-10-batches-py", "data_batch_%d" % index), batch(count // 5))
        write(os.path.join(folder, "cifar-10-batches-py", "test_batch"), batch(256))
        write(os.path.join(folder, "cifar-10-batches-py", "batches.meta"), pickle.dumps({"label_names": ["%d" % i for i in range(10)]}))
    else:
        write(os.path.join(folder, "cifar-100-python", "train"), batch(count))
        write(os.path.join(folder, "cifar-100-python", "test"), batch(256))
        write(os.path.join(folder, "cifar-100-python", "meta"), pickle.dumps({"fine_label_names": ["%d" % i for i in range(100)]}))


@maker
def images(folder, count=512, size=256, classes=4, parts="train,val"):
    """An ImageFolder of JPEGs: part/class/image."""
    real = []
    for index in range(16):
        real.append(os.path.join(folder, ".real", "%d.jpg" % index))
        jpeg(real[-1], int(size), index)
    for part in parts.split(","):
        number = int(count) if part == "train" else 64
        for index in range(int(classes)):
            name = "n%04d" % index
            linked(os.path.join(folder, part, name), name + "_%05d.jpg", number // int(classes), real[index:])


@maker
def flat_images(folder, path=".", count=512, size=256):
    """JPEGs side by side in one folder; several paths with commas."""
    real = []
    for index in range(16):
        real.append(os.path.join(folder, ".real", "%d.jpg" % index))
        jpeg(real[-1], int(size), index)
    for one in path.split(","):
        linked(os.path.join(folder, one), "%05d.jpg", int(count), real)


@maker
def masked_images(folder, count=512, size=256):
    """JPEGs in imgs/, and in masks/ for each a mask of two values."""
    from PIL import Image

    flat_images(folder, "imgs", count, size)
    real = os.path.join(folder, ".real", "mask.png")
    mask = np.zeros((int(size), int(size)), dtype=np.uint8)
    mask[: int(size) // 2] = 255
    Image.fromarray(mask).save(real)
    linked(os.path.join(folder, "masks"), "%05d.png", int(count), [real])


@maker
def corpus(folder, lines=4000):
    """train.txt, valid.txt and test.txt of words, and all of it as input.txt."""
    for name, number in [("train", int(lines)), ("valid", 60), ("test", 60)]:
        write(os.path.join(folder, name + ".txt"), "\n".join(text(number, len(name))) + "\n")
    # chargpt.py samples from a context of its own, whose letters have to be in the text.
    write(os.path.join(folder, "input.txt"), "O God, O God!\n" + "\n".join(text(int(lines))) + "\n")


@maker
def names(folder, count=20000):
    random = np.random.default_rng(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(letters[i] for i in random.integers(0, 26, int(random.integers(3, 14)))) for _ in range(int(count))]
    write(os.path.join(folder, "names.txt"), "\n".join(words) + "\n")


@maker
def tokens(folder, count=2000000, vocabulary=65):
    """nanoGPT's train.bin, val.bin and meta.pkl."""
    random = np.random.default_rng(0)
    for name in ["train", "val"]:
        write(os.path.join(folder, name + ".bin"), random.integers(0, int(vocabulary), int(count)).astype(np.uint16).tobytes())
    letters = [chr(33 + i) for i in range(int(vocabulary))]
    meta = {"vocab_size": int(vocabulary), "itos": dict(enumerate(letters)), "stoi": {c: i for i, c in enumerate(letters)}}
    write(os.path.join(folder, "meta.pkl"), pickle.dumps(meta))


@maker
def tokenizer(folder, kind="bert", vocabulary=512):
    """A word-level tokenizer and a tiny or (`-base`) full configuration of a model's architecture, without weights."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
    from transformers import AutoConfig, PreTrainedTokenizerFast

    special = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]", "</s>"]
    made = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.train_from_iterator(text(500), trainers.WordLevelTrainer(special_tokens=special))
    if kind.startswith(("bert", "distilbert")):
        pairs = [("[CLS]", 2), ("[SEP]", 3)]
        made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", pairs)
    own = dict(unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]", eos_token="</s>", bos_token="</s>")
    wrapped = PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=512, **own)
    wrapped.save_pretrained(folder)
    size = max(int(vocabulary), len(wrapped))
    name, _, scale = kind.partition("-")  # `gpt2`: tiny, `gpt2-base`: as the class has it
    tiny = {
        "bert": dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128),
        "gpt2": dict(n_embd=64, n_layer=2, n_head=2),
        "t5": dict(d_model=64, d_ff=128, num_layers=2, num_heads=2, d_kv=32, decoder_start_token_id=1),
        "llama": dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, intermediate_size=128),
    }
    base = {"t5": dict(decoder_start_token_id=1), "llama": dict(hidden_size=1024, num_hidden_layers=12, num_attention_heads=16, num_key_value_heads=8, intermediate_size=2816)}
    more = base.get(name, {}) if scale == "base" else tiny[name]
    config = AutoConfig.for_model(name, vocab_size=size, pad_token_id=1, eos_token_id=5, bos_token_id=5, **more)
    config.save_pretrained(folder)


@maker
def model(folder, kind="bert", head="AutoModelForSequenceClassification"):
    """As `tokenizer`, and random weights of a model with that head."""
    import transformers

    tokenizer(folder, kind)
    config = transformers.AutoConfig.from_pretrained(folder)
    getattr(transformers, head).from_config(config).save_pretrained(folder)


@maker
def rows(folder, kind="glue", count=2000):
    """train, validation and test as JSON lines: `glue` (two sentences, a label), `text`, `summary`, `tags`, `swag`, `translation`, `chat`, `prompt`, `pairs`."""
    lines = text(3 * int(count), 3)
    for name, number in [("train", int(count)), ("validation", 64), ("test", 64)]:
        made = []
        for index in range(number):
            one, two, three = lines[3 * index : 3 * index + 3]
            made.append(
                {
                    "glue": {"sentence1": one, "sentence2": two, "label": index % 2, "idx": index},
                    "text": {"text": one},
                    "summary": {"text": one + " " + two, "summary": three},
                    "tags": {"tokens": one.split(), "ner_tags": ["A" if len(w) > 3 else "B" for w in one.split()]},
                    "swag": {"sent1": one, "sent2": two, "label": index % 4, **{"ending%d" % i: three[i:] for i in range(4)}},
                    "translation": {"translation": {"en": one, "de": two}},
                    "chat": {"messages": [{"role": "user", "content": one}, {"role": "assistant", "content": two}]},
                    "prompt": {"prompt": one, "completion": " " + two},
                    "pairs": {"prompt": one, "chosen": " " + two, "rejected": " " + three},
                }[kind]
            )
        write(os.path.join(folder, name + ".json"), "\n".join(json.dumps(one) for one in made) + "\n")
    parts = "".join("      - split: %s\n        path: %s.json\n" % (one, one) for one in ["train", "validation", "test"])
    card = "---\nconfigs:\n" + "".join("  - config_name: %s\n    data_files:\n%s" % (one, parts) for one in ["default", "mrpc"]) + "---\n"
    write(os.path.join(folder, "README.md"), card)


@maker
def wikitext(folder, lines=8000):
    """Lightning's wikitext-2.txt, and MNIST's folder empty."""
    write(os.path.join(folder, "wikitext-2.txt"), "\n".join(text(int(lines))) + "\n")


@maker
def graphs(folder, name="MUTAG", count=1000):
    """A TUDataset: rings with chords, labelled by how many chords they have."""
    random = np.random.default_rng(0)
    edges, owners, labels, kinds, first = [], [], [], [], 1
    for graph in range(int(count)):
        size, chords = int(random.integers(10, 30)), int(random.integers(0, 2)) * 6
        pairs = [(i, (i + 1) % size) for i in range(size)] + [tuple(random.integers(0, size, 2)) for _ in range(chords)]
        edges += ["%d, %d" % (first + a, first + b) for one, other in pairs for a, b in [(one, other), (other, one)]]
        owners += [str(graph + 1)] * size
        kinds += [str(i) for i in random.integers(0, 7, size)]
        labels.append(str(min(chords, 1)))
        first += size
    parts = {"A": edges, "graph_indicator": owners, "graph_labels": labels, "node_labels": kinds}
    for part, lines in parts.items():
        write(os.path.join(folder, name, "raw", "%s_%s.txt" % (name, part)), "\n".join(lines) + "\n")


if __name__ == "__main__":
    target, name, *arguments = sys.argv[1:]
    MAKERS[name](target, *arguments)
    write(os.path.join(target, "made"), " ".join(sys.argv[2:]) + "\n")
