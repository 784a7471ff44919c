/** Makes a job's text safe for a terminal: escape sequences could set its title, fill the clipboard or answer on our stdin. */

const ESC = 0x1b;
const BEL = 0x07;
/** No terminal understands longer parameters. */
const LONGEST_SEQUENCE = 64;
/** Colours and erasing the rest of a line, which progress bars need. */
const KEPT_SEQUENCE = /^(?:[\d;:]*m|[012]?K)$/;
const RESET = Buffer.from('\u001b[0m');

enum State {
  Text,
  /** After ESC. */
  Escape,
  /** ESC, and bytes that say which set of characters is meant. */
  Charset,
  /** ESC [ …, to the letter that says what is to be done. */
  Sequence,
  /** ESC ] … and its like: to BEL, ESC \ or the end of the line. */
  Words,
  WordsEscape,
}

/** Parses a stream byte by byte, so that a sequence may be split between chunks. */
export class TerminalText {
  #state = State.Text;
  #sequence = '';
  #coloured = false;
  /** 0xc2 was the last byte: with the next it may be one of the control characters beyond ASCII. */
  #lead = false;

  /** `colours`: these stay, and so do a carriage return and a backspace. */
  constructor(private readonly colours: boolean) {}

  take(chunk: Uint8Array): Buffer {
    const out = Buffer.allocUnsafe(chunk.length + 1 + LONGEST_SEQUENCE + 2);
    let length = 0;
    for (const byte of chunk) {
      const kept = this.#step(byte);
      if (kept === null) continue;
      if (typeof kept === 'number') out[length++] = kept;
      else length += kept.copy(out, length);
    }
    return out.subarray(0, length);
  }

  /** What sets the terminal right again after the last of it. */
  end(): Buffer {
    const coloured = this.#coloured;
    this.#state = State.Text;
    this.#coloured = this.#lead = false;
    return coloured ? RESET : Buffer.alloc(0);
  }

  #step(byte: number): number | Buffer | null {
    if (this.#lead) {
      this.#lead = false;
      if (byte >= 0x80 && byte <= 0x9f) return this.#beyondAscii(byte);
      const rest = this.#step(byte);
      const lead = Buffer.from([0xc2]);
      return rest === null ? lead : Buffer.concat([lead, typeof rest === 'number' ? Buffer.from([rest]) : rest]);
    }
    switch (this.#state) {
      case State.Text:
        return this.#text(byte);
      case State.Escape:
        return this.#escape(byte);
      case State.Charset:
        if (byte < 0x20 || byte > 0x2f) this.#state = State.Text;
        return byte === 0x0a ? byte : null;
      case State.Sequence:
        return this.#inSequence(byte);
      case State.Words:
        return this.#inWords(byte);
      case State.WordsEscape:
        if (byte === 0x5c) this.#state = State.Text;
        else return this.#escape(byte);
        return null;
    }
  }

  #text(byte: number): number | null {
    if (byte === 0xc2) {
      this.#lead = true;
      return null;
    }
    if (byte === ESC) this.#state = State.Escape;
    if (byte >= 0x20 && byte !== 0x7f) return byte;
    if (byte === 0x0a || byte === 0x09 || (this.colours && (byte === 0x0d || byte === 0x08))) return byte;
    return byte >= 0x0b && byte <= 0x0d ? 0x20 : null;
  }

  /** U+0080 to U+009F: `CSI`, `OSC` and others in one character. */
  #beyondAscii(byte: number): null {
    if (this.#state !== State.Text) return null;
    if (byte === 0x9b) this.#begin();
    else if ([0x90, 0x98, 0x9d, 0x9e, 0x9f].includes(byte)) this.#state = State.Words;
    return null;
  }

  #escape(byte: number): number | null {
    this.#state = State.Text;
    if (byte === 0x5b) this.#begin();
    else if ([0x50, 0x58, 0x5d, 0x5e, 0x5f].includes(byte)) this.#state = State.Words;
    else if (byte >= 0x20 && byte <= 0x2f) this.#state = State.Charset;
    else if (byte < 0x20 || byte > 0x7e) return this.#text(byte);
    return null;
  }

  #begin(): void {
    this.#state = State.Sequence;
    this.#sequence = '';
  }

  #inSequence(byte: number): number | Buffer | null {
    if (byte < 0x20 || byte > 0x7e) {
      this.#state = State.Text;
      return this.#text(byte);
    }
    this.#sequence += String.fromCharCode(byte);
    if (byte < 0x40) {
      if (this.#sequence.length > LONGEST_SEQUENCE) this.#state = State.Text;
      return null;
    }
    this.#state = State.Text;
    if (!this.colours || !KEPT_SEQUENCE.test(this.#sequence)) return null;
    this.#coloured ||= byte === 0x6d;
    return Buffer.from(`\u001b[${this.#sequence}`, 'latin1');
  }

  #inWords(byte: number): number | null {
    if (byte === ESC) this.#state = State.WordsEscape;
    else if (byte === BEL) this.#state = State.Text;
    else if (byte === 0x0a) {
      this.#state = State.Text;
      return byte;
    }
    return null;
  }
}

/** Marks that change the direction of writing, and could make one line look like another. */
const TURNS = /[\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const SUSPECT = new RegExp(`(?![\\t\\n])\\p{Cc}|${TURNS.source}`, 'u');

/** Text without escape sequences, colours included. */
export function plainText(text: string): string {
  if (!SUSPECT.test(text)) return text;
  return new TerminalText(false).take(Buffer.from(text)).toString('utf8').replace(TURNS, '\ufffd');
}

/** The same for every text in a record. */
export function plain<T>(value: T): T {
  if (typeof value === 'string') return plainText(value) as T;
  if (Array.isArray(value)) return value.map((one) => plain(one)) as T;
  if (typeof value !== 'object' || value === null || Object.getPrototypeOf(value) !== Object.prototype) return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [plainText(name), plain(one)])) as T;
}
