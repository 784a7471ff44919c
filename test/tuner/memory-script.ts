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
    for (const word of wordsOf(script)) {
      if (word.does === 'zero') zero();
      else if (word.does === 'handle') this.#handle ??= this.#memory.allocate(HANDLE);
      else if (word.does === 'give') this.#give(names(word.name), word.name);
      else if (word.does === 'gradient') this.#gradients.push(this.#memory.allocate(this.#bytes(word.size, size)));
      else if (word.does === 'rename') {
        const { name, from } = word;
        const block = names(from).get(from);
        names(from).delete(from);
        if (block) names(name).set(name, block);
      } else {
        const { name } = word;
        const block = this.#memory.allocate(this.#bytes(word.size, size));
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

  #bytes({ units, eachSample, bytes }: Size, size: number): number {
    return (units * this.#script.unit + eachSample) * size + bytes;
  }
}

interface Size {
  units: number;
  eachSample: number;
  bytes: number;
}

type Word =
  | { does: 'zero' | 'handle' }
  | { does: 'give'; name: string }
  | { does: 'gradient'; size: Size }
  | { does: 'rename'; name: string; from: string }
  | { does: 'take'; name: string; size: Size };

/** Each is played thousands of times. */
const known = new Map<string, readonly Word[]>();

function wordsOf(script: string): readonly Word[] {
  const words = known.get(script) ?? script.split(/\s+/).filter(Boolean).map(wordOf);
  known.set(script, words);
  return words;
}

function wordOf(word: string): Word {
  if (word === 'zero') return { does: 'zero' };
  if (word === '$$handle') return { does: 'handle' };
  if (word.startsWith('-')) return { does: 'give', name: word.slice(1) };
  if (word.startsWith('!')) return { does: 'gradient', size: sizeOf(word.slice(1)) };
  if (word.includes('<')) {
    const [name = '', from = ''] = word.split('<');
    return { does: 'rename', name, from };
  }
  const [name = '', text = ''] = word.split(':');
  return { does: 'take', name, size: sizeOf(text) };
}

function sizeOf(text: string): Size {
  const size: Size = { units: 0, eachSample: 0, bytes: 0 };
  for (const part of text.split('+')) {
    const count = Number(part.slice(0, -1));
    const kind = part.at(-1);
    if (kind === 'u') size.units += count;
    else if (kind === 's') size.eachSample += count;
    else if (kind === 'b') size.bytes += count;
    else throw new Error(`No size: ${text}`);
  }
  return size;
}
