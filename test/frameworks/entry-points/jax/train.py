"""A perceptron of Flax, trained with Optax: `train.py --batch-size N [--steps N]`."""

import argparse

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--steps", type=int, default=3)
asked = parser.parse_args()


class Perceptron(nn.Module):
    @nn.compact
    def __call__(self, samples):
        return nn.Dense(1)(nn.relu(nn.Dense(16)(samples)))


model = Perceptron()
optimizer = optax.sgd(1e-3)
samples = jnp.ones((asked.batch_size, 8192))
wanted = jnp.ones((asked.batch_size, 1))


@jax.jit
def start(samples):
    weights = model.init(jax.random.PRNGKey(0), samples)
    return weights, optimizer.init(weights)


@jax.jit
def step(weights, state, samples, wanted):
    def loss(weights):
        return ((model.apply(weights, samples) - wanted) ** 2).mean()

    value, gradients = jax.value_and_grad(loss)(weights)
    updates, state = optimizer.update(gradients, state)
    return optax.apply_updates(weights, updates), state, value


weights, state = start(samples[:1])
for number in range(asked.steps):
    weights, state, value = step(weights, state, samples, wanted)
    print("step %d loss %g" % (number, float(value)))
