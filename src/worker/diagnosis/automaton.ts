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

  /** `literals` are canonical (see `canonical`): lower case, no white space. */
  constructor(literals: readonly string[]) {
    const { classOf, shift } = classes(literals);
    const trie = buildTrie(literals, classOf);
    const order = acceptLast(trie.outputs);
    const width = 1 << shift;
    const next = new Uint16Array(trie.outputs.length << shift);
    for (let state = 0; state < trie.outputs.length; state++) {
      const row = (order[state] as number) << shift;
      for (let c = 0; c < width; c++) next[row | c] = order[trie.goto(state, c)] as number;
      next[row | BLANK] = order[state] as number;
    }
    this.classOf = classOf;
    this.shift = shift;
    this.next = next;
    this.firstAccept = trie.outputs.filter((o) => o.length === 0).length;
    this.outputs = new Array<number[]>(trie.outputs.length - this.firstAccept);
    trie.outputs.forEach((ids, state) => {
      if (ids.length > 0) this.outputs[(order[state] as number) - this.firstAccept] = ids;
    });
  }

  /** Position after the first literal that ends in buffer[from, to), or -1. `cursor.state` carries on over calls. */
  find(buffer: Uint8Array, from: number, to: number, cursor: { state: number }): number {
    const { next, classOf, shift, firstAccept } = this;
    let state = cursor.state;
    for (let i = from; i < to; i++) {
      state = next[(state << shift) | (classOf[buffer[i] as number] as number)] as number;
      if (state >= firstAccept) {
        cursor.state = 0;
        return i + 1;
      }
    }
    cursor.state = state;
    return -1;
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
  outputs: number[][];
  goto(state: number, c: number): number;
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
  const goto = (state: number, c: number): number => {
    let at = state;
    for (;;) {
      const to = (children[at] as Map<number, number>).get(c);
      if (to !== undefined) return to;
      if (at === 0) return 0;
      at = fail[at] as number;
    }
  };
  const queue = [...(children[0] as Map<number, number>).values()];
  for (let head = 0; head < queue.length; head++) {
    const state = queue[head] as number;
    (outputs[state] as number[]).push(...(outputs[fail[state] as number] as number[]));
    for (const [c, to] of children[state] as Map<number, number>) {
      fail[to] = goto(fail[state] as number, c);
      queue.push(to);
    }
  }
  return { outputs, goto };
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
