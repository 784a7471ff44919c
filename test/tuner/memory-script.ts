import type { Block, CachingAllocator } from '../../src/worker/estimate/caching-allocator.js';

/**
 * What one training step takes from the allocator and gives back, in its order. A script is words:
 * `name:SIZE` takes a block, `-name` gives it back, `!SIZE` takes a gradient, `to<from` renames. A size is a sum of parts as
 * `4u` (units for each sample), `96s` (bytes for each sample) and `8b` (bytes). Names belong to their layer, those that begin with
 * $ to all. `zero` is where gradients go, `$$handle` where the backend takes its own block, once.
 */
export interface MemoryScript {
  unit: number;
  weights: readonly number[];
  layers: number;
  begin: string;
  layerForward: string;
  loss: string;
  layerBackward: string;
  end: string;
}

/** cuBLAS keeps this from its first use on. */
const HANDLE = 32 * 1024 ** 2;

type Names = Map<string, Block>;

/** The blocks of a step, and what stays from step to step. */
export class Stage {
  readonly #memory: CachingAllocator;
  readonly #script: MemoryScript;
  readonly #shared: Names = new Map();
  #handle: Block | null = null;
  #gradients: Block[] = [];

  constructor(memory: CachingAllocator, script: MemoryScript) {
    this.#memory = memory;
    this.#script = script;
  }

  /** Forward and backward once; returns the gradients. */
  forwardBackward(size: number, zero: () => void): Block[] {
    this.#gradients = [];
    const { begin, layerForward, loss, layerBackward, end, layers } = this.#script;
    const own: Names[] = Array.from({ length: layers }, () => new Map());
    const outer: Names = new Map();
    this.#play(begin, outer, size, zero);
    for (const names of own) this.#play(layerForward, names, size, zero);
    this.#play(loss, outer, size, zero);
    for (const names of own.toReversed()) this.#play(layerBackward, names, size, zero);
    this.#play(end, outer, size, zero);
    return this.#gradients;
  }

  #play(script: string, own: Names, size: number, zero: () => void): void {
    const names = (name: string): Names => (name.startsWith('$') ? this.#shared : own);
    for (const word of script.split(/\s+/).filter(Boolean)) {
      if (word === 'zero') zero();
      else if (word === '$$handle') this.#handle ??= this.#memory.allocate(HANDLE);
      else if (word.startsWith('-')) this.#give(names(word.slice(1)), word.slice(1));
      else if (word.startsWith('!')) this.#gradients.push(this.#memory.allocate(this.#bytes(word.slice(1), size)));
      else if (word.includes('<')) {
        const [to = '', from = ''] = word.split('<');
        const block = names(from).get(from);
        names(from).delete(from);
        if (block) names(to).set(to, block);
      } else {
        const [name = '', text = ''] = word.split(':');
        const block = this.#memory.allocate(this.#bytes(text, size));
        // What a name stood for goes when the name gets its next value, as in the script's language.
        this.#give(names(name), name);
        names(name).set(name, block);
      }
    }
  }

  #give(names: Names, name: string): void {
    const block = names.get(name);
    names.delete(name);
    if (block) this.#memory.free(block);
  }

  #bytes(text: string, size: number): number {
    let bytes = 0;
    for (const part of text.split('+')) {
      const count = Number(part.slice(0, -1));
      const kind = part.at(-1);
      if (kind === 'u') bytes += count * this.#script.unit * size;
      else if (kind === 's') bytes += count * size;
      else if (kind === 'b') bytes += count;
      else throw new Error(`No size: ${text}`);
    }
    return bytes;
  }
}
