"""Keras 3 on torch: fit() with weights of the classes, a regulariser, an own norm for gradients and validation in small batches."""
import os

os.environ["KERAS_BACKEND"] = "torch"
import keras
import numpy
import torch
from keras import layers

keras.config.set_floatx("float64")
keras.utils.set_random_seed(0)
images = numpy.random.rand(1536, 16, 16, 3)
labels = numpy.random.randint(0, 10, 1536)
inputs = keras.Input((16, 16, 3))
hidden = layers.Conv2D(16, 3, activation="relu", kernel_regularizer=keras.regularizers.L2(1e-3))(inputs)
hidden = layers.Conv2D(32, 3, activation="relu")(layers.LayerNormalization()(hidden))
model = keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(hidden)))
model.compile(
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    optimizer=keras.optimizers.SGD(0.05, momentum=0.9, clipnorm=1.0),
    metrics=["accuracy"],
)
model.fit(
    images,
    labels,
    batch_size=int(os.environ.get("BATCH", 512)),
    epochs=2,
    validation_split=0.1,
    validation_batch_size=16,
    class_weight={label: 1 + label / 10 for label in range(10)},
    verbose=2,
)
torch.save(model.state_dict(), "weights.pt")
