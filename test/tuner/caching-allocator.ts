/**
 * torch's caching allocator on one stream, as CUDACachingAllocator.cpp hands out blocks: two pools, best fit, blocks split
 * and merged, whole free segments given back before a request is refused. What fragments and what creeps near a limit
 * follows from that alone, so that a search can be tried against it without a GPU.
 */

const MIB = 1024 ** 2;
const ROUNDED_TO = 512;
/** Requests up to this are small ones: they share segments of 2 MiB. */
const SMALL = MIB;
const SMALL_SEGMENT = 2 * MIB;
/** Requests below this share segments of 20 MiB; larger ones get a segment of their own, in whole steps of 2 MiB. */
const OWN_SEGMENT = 10 * MIB;
const SHARED_SEGMENT = 20 * MIB;

export interface Block {
  readonly pool: Block[];
  readonly address: number;
  size: number;
  free: boolean;
  before: Block | null;
  after: Block | null;
}

/** No segment was left to give, and none could be had. */
export class OutOfMemory extends Error {
  constructor(readonly wanted: number) {
    super(`Tried to allocate ${wanted} bytes`);
  }
}

export class CachingAllocator {
  reserved = 0;
  allocated = 0;
  peakReserved = 0;
  peakAllocated = 0;
  /** Requests for which the cache had to be given back first. */
  retries = 0;
  /** Segments asked of the driver so far. */
  segments = 0;
  /** Free blocks, by size and then by address. */
  readonly #small: Block[] = [];
  readonly #large: Block[] = [];
  #nextAddress = 0;

  constructor(readonly limit: number) {}

  allocate(bytes: number): Block {
    const size = Math.max(ROUNDED_TO, Math.ceil(bytes / ROUNDED_TO) * ROUNDED_TO);
    const pool = size <= SMALL ? this.#small : this.#large;
    const at = place(pool, size, -1);
    const block = at < pool.length ? (pool.splice(at, 1)[0] as Block) : this.#segment(pool, size);
    const rest = block.size - size;
    if (pool === this.#small ? rest >= ROUNDED_TO : rest > SMALL) {
      const { after } = block;
      const remainder: Block = { pool, address: block.address + size, size: rest, free: true, before: block, after };
      if (after) after.before = remainder;
      block.after = remainder;
      block.size = size;
      put(remainder);
    }
    block.free = false;
    this.allocated += block.size;
    this.peakAllocated = Math.max(this.peakAllocated, this.allocated);
    return block;
  }

  free(block: Block): void {
    this.allocated -= block.size;
    block.free = true;
    let whole = block;
    const { before, after } = block;
    if (after?.free) {
      take(after);
      join(whole, after);
    }
    if (before?.free) {
      take(before);
      join(before, whole);
      whole = before;
    }
    put(whole);
  }

  /** Gives every segment back in which nothing is used. */
  emptyCache(): void {
    for (const pool of [this.#small, this.#large]) {
      const kept: Block[] = [];
      for (const block of pool) {
        if (block.before === null && block.after === null) this.reserved -= block.size;
        else kept.push(block);
      }
      pool.splice(0, pool.length, ...kept);
    }
  }

  resetPeaks(): void {
    this.peakReserved = this.reserved;
    this.peakAllocated = this.allocated;
  }

  #segment(pool: Block[], wanted: number): Block {
    const own = Math.ceil(wanted / SMALL_SEGMENT) * SMALL_SEGMENT;
    const size = pool === this.#small ? SMALL_SEGMENT : wanted < OWN_SEGMENT ? SHARED_SEGMENT : own;
    if (this.reserved + size > this.limit) {
      this.retries += 1;
      this.emptyCache();
      if (this.reserved + size > this.limit) throw new OutOfMemory(wanted);
    }
    this.segments += 1;
    this.reserved += size;
    this.peakReserved = Math.max(this.peakReserved, this.reserved);
    const address = this.#nextAddress;
    this.#nextAddress += size;
    return { pool, address, size, free: true, before: null, after: null };
  }
}

/** Where a block of this size and address is, or would be, in a pool. */
function place(pool: readonly Block[], size: number, address: number): number {
  let low = 0;
  let high = pool.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const block = pool[middle] as Block;
    if (block.size < size || (block.size === size && block.address < address)) low = middle + 1;
    else high = middle;
  }
  return low;
}

function put(block: Block): void {
  block.pool.splice(place(block.pool, block.size, block.address), 0, block);
}

function take(block: Block): void {
  block.pool.splice(place(block.pool, block.size, block.address), 1);
}

/** The second block becomes a part of the first, which it follows. */
function join(first: Block, second: Block): void {
  first.size += second.size;
  first.after = second.after;
  if (second.after) second.after.before = first;
}
