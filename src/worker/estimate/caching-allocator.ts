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
  /** Addresses behind which there is no memory now: of segments that can grow alone. */
  unmapped?: boolean;
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
  /** The request that was refused, in bytes; 0: none was. */
  wanted = 0;
  /** Segments asked of the driver so far. */
  segments = 0;
  /** Free blocks, by size and then by address. */
  readonly #small: Block[] = [];
  readonly #large: Block[] = [];
  #nextAddress = 0;
  /** The one segment of each pool, where segments can grow: its first block. */
  readonly #growing = new Map<Block[], Block>();

  /** `expandable`: segments can grow, as with `expandable_segments:True`. */
  constructor(
    readonly limit: number,
    readonly expandable = false,
  ) {}

  allocate(bytes: number): Block {
    const size = Math.max(ROUNDED_TO, Math.ceil(bytes / ROUNDED_TO) * ROUNDED_TO);
    const pool = size <= SMALL ? this.#small : this.#large;
    const at = place(pool, size, -1);
    const block =
      at < pool.length
        ? (pool.splice(at, 1)[0] as Block)
        : this.expandable
          ? this.#grown(pool, size)
          : this.#segment(pool, size);
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
    if (after?.free && !after.unmapped) {
      take(after);
      join(whole, after);
    }
    if (before?.free && !before.unmapped) {
      take(before);
      join(before, whole);
      whole = before;
    }
    put(whole);
  }

  /** Gives every segment back in which nothing is used. */
  emptyCache(): void {
    if (this.expandable) {
      for (const pool of [this.#small, this.#large]) for (const block of [...pool]) this.#unmap(pool, block);
      return;
    }
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

  #refused(bytes: number): OutOfMemory {
    this.wanted = bytes;
    return new OutOfMemory(bytes);
  }

  #segment(pool: Block[], wanted: number): Block {
    const own = Math.ceil(wanted / SMALL_SEGMENT) * SMALL_SEGMENT;
    const size = pool === this.#small ? SMALL_SEGMENT : wanted < OWN_SEGMENT ? SHARED_SEGMENT : own;
    if (this.reserved + size > this.limit) {
      this.retries += 1;
      this.emptyCache();
      if (this.reserved + size > this.limit) throw this.#refused(wanted);
    }
    this.segments += 1;
    this.reserved += size;
    this.peakReserved = Math.max(this.peakReserved, this.reserved);
    const address = this.#nextAddress;
    this.#nextAddress += size;
    return { pool, address, size, free: true, before: null, after: null };
  }

  /** A block that begins in a free piece, or behind the last, and goes on over addresses that are mapped for it. */
  #grown(pool: Block[], size: number): Block {
    let block = this.#mapped(pool, size);
    if (block === null) {
      this.retries += 1;
      this.emptyCache();
      block = this.#mapped(pool, size);
    }
    if (block === null) throw this.#refused(size);
    return block;
  }

  /** Null: there is not so much memory left. */
  #mapped(pool: Block[], size: number): Block | null {
    const page = pool === this.#small ? SMALL_SEGMENT : SHARED_SEGMENT;
    let first = this.#growing.get(pool);
    if (!first) {
      const all = Math.floor((8 * this.limit) / page) * page;
      first = { pool, address: this.#nextAddress, size: all, free: true, unmapped: true, before: null, after: null };
      this.#nextAddress += all;
      this.#growing.set(pool, first);
    }
    for (let at: Block | null = first; at; at = at.after) {
      if (!at.free) continue;
      let [end, room, missing]: [Block, number, number] = [at, 0, 0];
      for (let next: Block | null = at; next?.free && room < size; next = next.after) {
        const part = Math.min(next.size, size - room);
        if (next.unmapped) missing += Math.ceil(part / page) * page;
        [end, room] = [next, room + part];
      }
      if (room < size) {
        at = end;
        continue;
      }
      if (this.reserved + missing > this.limit) return null;
      return this.#join(at, end, size, page);
    }
    return null;
  }

  /** Maps what is unmapped from one block to another, as far as `size` needs it, and makes one block of it. */
  #join(first: Block, last: Block, size: number, page: number): Block {
    let room = 0;
    for (let block: Block | null = first; block; block = block.after) {
      if (block.unmapped) {
        const wanted = Math.min(block.size, Math.ceil((size - room) / page) * page);
        if (wanted < block.size) split(block, wanted, true);
        block.unmapped = false;
        this.reserved += wanted;
        this.peakReserved = Math.max(this.peakReserved, this.reserved);
        this.segments += 1;
      } else take(block);
      room += block.size;
      if (block === last) break;
    }
    while (first.size < room) join(first, first.after as Block);
    return first;
  }

  /** Gives back the whole pages of a free block. */
  #unmap(pool: Block[], block: Block): void {
    const page = pool === this.#small ? SMALL_SEGMENT : SHARED_SEGMENT;
    const origin = (this.#growing.get(pool) as Block).address;
    const begin = Math.ceil((block.address - origin) / page) * page + origin;
    const end = Math.floor((block.address + block.size - origin) / page) * page + origin;
    if (end <= begin) return;
    take(block);
    let whole = block;
    if (begin > block.address) {
      whole = split(block, begin - block.address, false);
      put(block);
    }
    if (end < whole.address + whole.size) put(split(whole, end - whole.address, false));
    whole.unmapped = true;
    this.reserved -= whole.size;
    if (whole.after?.unmapped) join(whole, whole.after);
    if (whole.before?.unmapped) join(whole.before, whole);
  }
}

/** Leaves so many bytes to a block, and makes another of the rest. */
function split(block: Block, bytes: number, unmapped: boolean): Block {
  const { pool, after } = block;
  const rest: Block = {
    pool,
    address: block.address + bytes,
    size: block.size - bytes,
    free: true,
    unmapped,
    before: block,
    after,
  };
  if (after) after.before = rest;
  block.after = rest;
  block.size = bytes;
  return rest;
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
