/**
 * Finds many literals in one pass over bytes or characters (Aho-Corasick, with the transitions of every state written
 * out). White space and NULs are no part of the text: a message that a terminal wrapped in the middle of a word is still
 * found. Time is one table look-up for each byte, whatever the text.
 */
export class Automaton {
  /** Literal ids by state, for states from `firstAccept` up. */
  private readonly outputs: number[][];
  private readonly next: Uint16Array;
  private readonly classOf: Uint8Array;
  private readonly shift: number;
  private readonly firstAccept: number;
  /** Length of the longest literal: a state tells no more than as many characters. */
  private readonly longest: number;
  /** Characters of a literal that each state has seen. */
  private readonly depths: Uint8Array;

  /** `literals` are canonical (see `canonical`): lower case, no white space. */
  constructor(literals: readonly string[]) {
    const { classOf, shift } = classes(literals);
    const trie = buildTrie(literals, classOf);
    const order = acceptLast(trie.outputs);
    const next = new Uint16Array(trie.outputs.length << shift);
    // Level by level: a state goes where its suffix goes, but for its own children.
    for (const state of trie.breadthFirst) {
      const row = (order[state] as number) << shift;
      const suffix = (order[trie.fail[state] as number] as number) << shift;
      if (state !== 0) next.copyWithin(row, suffix, suffix + (1 << shift));
      for (const [c, to] of trie.children[state] as Map<number, number>) next[row | c] = order[to] as number;
      next[row | BLANK] = order[state] as number;
    }
    this.classOf = classOf;
    this.shift = shift;
    this.longest = Math.max(0, ...literals.map((literal) => literal.length));
    this.next = next;
    this.depths = new Uint8Array(trie.depths.length);
    trie.depths.forEach((depth, state) => {
      this.depths[order[state] as number] = Math.min(depth, 255);
    });
    this.firstAccept = trie.outputs.filter((o) => o.length === 0).length;
    this.outputs = new Array<number[]>(trie.outputs.length - this.firstAccept);
    trie.outputs.forEach((ids, state) => {
      if (ids.length > 0) this.outputs[(order[state] as number) - this.firstAccept] = ids;
    });
  }

  /** Position after the first literal that ends in buffer[from, to), or -1. `cursor` carries on over calls. */
  find(buffer: Uint8Array, from: number, to: number, cursor: Cursor): number {
    // Where one was found a moment ago the next is near: no use in walking ahead.
    let hit = cursor.near ? this.step(buffer, from, Math.min(to, from + STRIDE), cursor) : -1;
    let at = hit < 0 && cursor.near ? Math.min(to, from + STRIDE) : from;
    while (hit < 0 && at < to) {
      const whole = to - at >= STRIDE;
      if (!whole || !this.skip(buffer, at, cursor)) hit = this.step(buffer, at, Math.min(to, at + STRIDE), cursor);
      at += STRIDE;
    }
    cursor.near = hit >= 0 && hit - from < STRIDE;
    return hit;
  }

  private step(buffer: Uint8Array, from: number, to: number, cursor: Cursor): number {
    const { next, classOf, shift, firstAccept } = this;
    let state = cursor.state;
    for (let i = from; i < to; i++) {
      state = next[(state << shift) | (classOf[buffer[i] as number] as number)] as number;
      if (state >= firstAccept) {
        cursor.state = 0;
        cursor.literal = (this.outputs[state - firstAccept] as number[])[0] as number;
        return i + 1;
      }
    }
    cursor.state = state;
    return -1;
  }

  /** Skips STRIDE bytes in four parts side by side, as each look-up waits for the one before. False: something may be there. */
  private skip(buffer: Uint8Array, from: number, cursor: Cursor): boolean {
    const { next, classOf, shift, firstAccept } = this;
    const part = STRIDE >> 2;
    let a = cursor.state;
    let b = 0;
    let c = 0;
    let d = 0;
    for (let i = from; i < from + part; i++) {
      a = next[(a << shift) | (classOf[buffer[i] as number] as number)] as number;
      b = next[(b << shift) | (classOf[buffer[i + part] as number] as number)] as number;
      c = next[(c << shift) | (classOf[buffer[i + 2 * part] as number] as number)] as number;
      d = next[(d << shift) | (classOf[buffer[i + 3 * part] as number] as number)] as number;
      if (a >= firstAccept || b >= firstAccept || c >= firstAccept || d >= firstAccept) return false;
    }
    if (!this.forgets(buffer, from + part, part, a)) return false;
    if (!this.forgets(buffer, from + 2 * part, part, b)) return false;
    if (!this.forgets(buffer, from + 3 * part, part, c)) return false;
    // The last part began at the root: only what follows enough text is the same as if it had come from further back.
    if (!this.forgets(buffer, from + 3 * part, part, 0)) return false;
    cursor.state = d;
    return true;
  }

  /** Whether a walk from `state` meets no literal in the next `part` bytes before all that came before them is forgotten. */
  private forgets(buffer: Uint8Array, from: number, part: number, state: number): boolean {
    const { next, classOf, shift, firstAccept } = this;
    let at = state;
    let left = this.longest;
    for (let i = from; i < from + part; i++) {
      const c = classOf[buffer[i] as number] as number;
      at = next[(at << shift) | c] as number;
      if (at >= firstAccept) return false;
      if (c !== BLANK && --left === 0) return true;
    }
    return false;
  }

  /** How many characters of a literal have come when a walk ends in `state`: text that breaks off there may go on. */
  depth(state: number): number {
    return this.depths[state] ?? 0;
  }

  /** Walks canonical text from `state`; calls `hit(literal, end)` for each literal that ends in it; returns the state. */
  walk(text: string, state: number, hit: (literal: number, end: number) => void): number {
    const { next, classOf, shift, firstAccept } = this;
    let at = state;
    for (let i = 0; i < text.length; i++) {
      const code = text.charCodeAt(i);
      at = next[(at << shift) | (code < 256 ? (classOf[code] as number) : 0)] as number;
      if (at >= firstAccept) for (const literal of this.outputs[at - firstAccept] as number[]) hit(literal, i + 1);
    }
    return at;
  }
}

/** Where a search over several buffers stands, and the literal that it found last. */
export interface Cursor {
  state: number;
  literal: number;
  /** It was found after a short way. */
  near: boolean;
}

/** Bytes that are walked at once where nothing is found; more than four times the longest literal with its blanks. */
const STRIDE = 4096;

/** Class of white space, NUL and carriage return: the state stays as it is. Class 0: any byte that is in no literal. */
const BLANK = 1;

function classes(literals: readonly string[]): { classOf: Uint8Array; shift: number } {
  const classOf = new Uint8Array(256);
  for (const blank of [0, 9, 10, 11, 12, 13, 32]) classOf[blank] = BLANK;
  let count = 2;
  for (const literal of literals) {
    for (let i = 0; i < literal.length; i++) {
      const code = literal.charCodeAt(i);
      if (code > 126 || code < 33) throw new RangeError(`literal "${literal}" is not canonical`);
      if (classOf[code] === 0) classOf[code] = count++;
    }
  }
  for (let upper = 65; upper <= 90; upper++) classOf[upper] = classOf[upper + 32] as number;
  return { classOf, shift: Math.ceil(Math.log2(count)) };
}

interface Trie {
  children: Map<number, number>[];
  /** The state of the longest proper suffix that is a state too. */
  fail: Int32Array;
  outputs: number[][];
  /** All states, the shorter ones first. */
  breadthFirst: number[];
  /** By state. */
  depths: number[];
}

function buildTrie(literals: readonly string[], classOf: Uint8Array): Trie {
  const children: Map<number, number>[] = [new Map()];
  const outputs: number[][] = [[]];
  literals.forEach((literal, id) => {
    let state = 0;
    for (let i = 0; i < literal.length; i++) {
      const c = classOf[literal.charCodeAt(i)] as number;
      const row = children[state] as Map<number, number>;
      let to = row.get(c);
      if (to === undefined) {
        to = children.length;
        children.push(new Map());
        outputs.push([]);
        row.set(c, to);
      }
      state = to;
    }
    (outputs[state] as number[]).push(id);
  });
  const fail = new Int32Array(children.length);
  const breadthFirst = [0];
  const depths = children.map(() => 0);
  for (let head = 0; head < breadthFirst.length; head++) {
    const state = breadthFirst[head] as number;
    (outputs[state] as number[]).push(...(state === 0 ? [] : (outputs[fail[state] as number] as number[])));
    for (const [c, to] of children[state] as Map<number, number>) {
      depths[to] = (depths[state] as number) + 1;
      let at = state;
      while (at !== 0 && fail[to] === 0) {
        at = fail[at] as number;
        fail[to] = (children[at] as Map<number, number>).get(c) ?? 0;
      }
      breadthFirst.push(to);
    }
  }
  return { children, fail, outputs, breadthFirst, depths };
}

/** New number of each state: those that end a literal come last, so that one comparison tells them. Root stays 0. */
function acceptLast(outputs: number[][]): Uint16Array {
  if (outputs.length > 0xffff) throw new RangeError('too many literals');
  const order = new Uint16Array(outputs.length);
  let at = 0;
  for (const wanted of [false, true]) {
    outputs.forEach((ids, state) => {
      if (ids.length > 0 === wanted) order[state] = at++;
    });
  }
  return order;
}
