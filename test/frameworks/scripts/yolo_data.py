"""Makes what `yolo train` reads: `tiny.yaml` (a model), `squares.yaml` (a data set) and its pictures of grey squares."""
import os

import numpy as np
from PIL import Image

MODEL = """
nc: 1
backbone:
  - [-1, 1, Conv, [16, 3, 2]]
  - [-1, 1, Conv, [32, 3, 2]]
  - [-1, 1, C2f, [32]]
head:
  - [[2], 1, Detect, [nc]]
"""
random = np.random.default_rng(0)
for part, count in (("train", 96), ("val", 8)):
    for folder in ("images", "labels"):
        os.makedirs(os.path.join("squares", folder, part), exist_ok=True)
    for number in range(count):
        picture = random.integers(0, 80, (32, 32, 3), dtype=np.uint8)
        x, y = random.integers(0, 16, 2)
        picture[y : y + 16, x : x + 16] += 120
        Image.fromarray(picture).save("squares/images/%s/%d.png" % (part, number))
        with open("squares/labels/%s/%d.txt" % (part, number), "w") as file:
            file.write("0 %.4f %.4f 0.5 0.5\n" % ((x + 8) / 32, (y + 8) / 32))
with open("tiny.yaml", "w") as file:
    file.write(MODEL)
with open("squares.yaml", "w") as file:
    file.write("path: %s\ntrain: images/train\nval: images/val\nnames: {0: square}\n" % os.path.abspath("squares"))
