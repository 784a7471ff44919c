import fc from 'fast-check';
import type { Block, CachingAllocator } from '../../src/worker/estimate/caching-allocator.js';
import { MIB } from './machine.js';

/** One layer, in bytes: what forward keeps for backward and what it takes and gives back on the way, for each sample. */
export interface Layer {
  weights: readonly number[];
  kept: readonly number[];
  passing: readonly number[];
  /** Taken and given back in forward and in backward, whatever the batch. */
  workspace: number;
  /** This layer's output is kept until the layer with this index has gone backward: a skip connection; null: none. */
  skipTo: number | null;
}

/** A network by its layers: in which order a training step takes memory and gives it back. */
export interface Network {
  layers: readonly Layer[];
  /** Taken one after the other by the loss, for each sample: in forward, and in backward. */
  loss: readonly number[];
  lossBackward: readonly number[];
  /** `zero_grad` between forward and backward, as many scripts have it; else at the end of the step. */
  gradientsInForward: boolean;
  /** Half-precision copies of the weights from their use in forward to their use in backward. */
  halfWeights: boolean;
}

/** Forward and backward once; returns the gradients. */
export function forwardBackward(network: Network, memory: CachingAllocator, size: number, zero: () => void): Block[] {
  const { layers, loss, lossBackward, halfWeights } = network;
  const sample = (bytes: number): Block => memory.allocate(bytes * size);
  const give = (blocks: readonly Block[]): void => {
    for (const block of blocks) memory.free(block);
  };
  const kept: Block[][] = [];
  const skips = new Map<number, Block[]>();
  const copies: Block[] = [];
  for (const layer of layers) {
    if (halfWeights) copies.push(...layer.weights.map((bytes) => memory.allocate(bytes / 2)));
    const mine: Block[] = [];
    let passing: Block | null = null;
    for (let i = 0; i < Math.max(layer.kept.length, layer.passing.length); i += 1) {
      if (layer.kept[i]) mine.push(sample(layer.kept[i] as number));
      const next: Block | null = layer.passing[i] ? sample(layer.passing[i] as number) : null;
      if (passing) memory.free(passing);
      passing = next;
    }
    if (layer.workspace > 0) memory.free(memory.allocate(layer.workspace));
    if (layer.skipTo !== null) {
      skips.set(layer.skipTo, [...(skips.get(layer.skipTo) ?? []), sample(layer.kept[0] ?? 512)]);
    }
    if (passing) memory.free(passing);
    kept.push(mine);
  }
  const losses = loss.map(sample);
  const last = losses.pop();
  give(losses);
  if (network.gradientsInForward) zero();

  const gradients: Block[] = [];
  let flowing: Block | null = null;
  const flow = (bytes: number): void => {
    const next = sample(bytes);
    if (flowing) memory.free(flowing);
    flowing = next;
  };
  for (const bytes of lossBackward) flow(bytes);
  if (last) memory.free(last);
  for (let index = layers.length - 1; index >= 0; index -= 1) {
    const layer = layers[index] as Layer;
    if (layer.workspace > 0) memory.free(memory.allocate(layer.workspace));
    for (const [at, block] of [...(kept[index] as Block[]).entries()].reverse()) {
      flow(layer.kept[at] as number);
      memory.free(block);
    }
    for (const bytes of layer.weights.toReversed()) {
      const half = halfWeights ? memory.allocate(bytes / 2) : null;
      gradients.push(memory.allocate(bytes));
      if (half) give([half, copies.pop() as Block]);
    }
    give(skips.get(index) ?? []);
  }
  if (flowing) memory.free(flowing);
  return gradients;
}

const KIB = 1024;

/** Networks of all kinds: deep and shallow, wide and narrow, with skip connections, workspaces and heavy losses. */
export const networks: fc.Arbitrary<Network> = fc
  .record({
    depth: fc.integer({ min: 2, max: 14 }),
    unit: fc.integer({ min: 40, max: 6000 }).map((n) => n * KIB),
    weight: fc.integer({ min: 1, max: 24 }).map((n) => n * MIB),
    kept: fc.array(fc.double({ min: 0.05, max: 4, noNaN: true }), { minLength: 2, maxLength: 10 }),
    passing: fc.array(fc.double({ min: 0, max: 4, noNaN: true }), { minLength: 1, maxLength: 8 }),
    workspace: fc.integer({ min: 0, max: 200 }).map((n) => n * MIB),
    skips: fc.boolean(),
    /** A convolutional network's layers shrink, a transformer's are alike. */
    shrink: fc.constantFrom(1, 1, 0.7, 0.5),
    loss: fc.double({ min: 0.01, max: 12, noNaN: true }),
    gradientsInForward: fc.boolean(),
    halfWeights: fc.boolean(),
  })
  .map(({ depth, unit, weight, kept, passing, workspace, skips, shrink, loss, gradientsInForward, halfWeights }) => ({
    layers: Array.from({ length: depth }, (_, at): Layer => {
      const scale = unit * shrink ** Math.min(at, 6);
      return {
        weights: [weight, weight / 4, 4 * KIB],
        kept: kept.map((part) => part * scale),
        passing: passing.map((part) => part * scale),
        workspace: at % 2 === 0 ? workspace : 0,
        skipTo: skips && at < depth / 2 ? depth - 1 - at : null,
      };
    }),
    loss: [loss * unit, 2 * loss * unit, 2 * loss * unit],
    lossBackward: [2 * loss * unit, 2 * loss * unit, loss * unit],
    gradientsInForward,
    halfWeights,
  }));
