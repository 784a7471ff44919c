/** The whole terminal, taken and given back as it was. */

const TAKE = '\u001b[?1049h\u001b[?25l';
const GIVE_BACK = '\u001b[?25h\u001b[?1049l';

export interface Key {
  name: 'up' | 'down' | 'enter' | 'interrupt' | 'text';
  text: string;
}

/** What a terminal sends for keys without a letter. */
const SEQUENCES: Record<string, Key['name']> = {
  '\u001b[A': 'up',
  '\u001bOA': 'up',
  '\u001b[B': 'down',
  '\u001bOB': 'down',
  '\r': 'enter',
  '\n': 'enter',
  '\u0003': 'interrupt',
};

/** The keys in what was read at once. */
export function keysIn(read: string): Key[] {
  const keys: Key[] = [];
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are keys
  for (const [text] of read.matchAll(/\u001b[[O][\d;]*[A-Za-z~]|[\s\S]/gu)) {
    if (text.length > 1 && SEQUENCES[text] === undefined) continue; // a key that means nothing here
    keys.push({ name: SEQUENCES[text] ?? 'text', text });
  }
  return keys;
}

/** Holds the screen from `take` to `giveBack`, which is called however the process ends. */
export class Terminal {
  #taken = false;
  readonly #onKeys: (data: Buffer) => void;
  readonly #onExit = (): void => this.giveBack();

  constructor(onKey: (key: Key) => void) {
    this.#onKeys = (data) => {
      for (const key of keysIn(data.toString('utf8'))) onKey(key);
    };
  }

  /** Keys come at once and are not echoed; Ctrl-C is a key. */
  listen(): void {
    process.stdin.setRawMode(true);
    process.stdin.on('data', this.#onKeys);
    process.stdin.resume();
    process.on('exit', this.#onExit);
  }

  take(): void {
    if (!this.#taken) process.stdout.write(TAKE);
    this.#taken = true;
  }

  /** Shows the screen as it was before; keys are still heard. */
  leaveScreen(): void {
    if (this.#taken) process.stdout.write(GIVE_BACK);
    this.#taken = false;
  }

  giveBack(): void {
    process.off('exit', this.#onExit);
    this.leaveScreen();
    process.stdin.off('data', this.#onKeys);
    process.stdin.pause();
    if (process.stdin.isRaw) process.stdin.setRawMode(false);
  }

  /** Overwrites the last picture without flicker. */
  draw(lines: string[]): void {
    if (!this.#taken) return;
    const rows = process.stdout.rows || 24;
    const shown = lines.slice(0, rows).map((line) => `${line}\u001b[K`);
    process.stdout.write(`\u001b[H${shown.join('\r\n')}\u001b[J`);
  }
}
