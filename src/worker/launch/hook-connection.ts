import type { Socket } from 'node:net';

/** The most that is read of a job's hook, ten times what a hook sends. */
const PER_SECOND = { messages: 500, bytes: 1024 * 1024 };
/** A burst: many ranks may begin together. */
const AT_ONCE = { messages: 5000, bytes: 8 * 1024 * 1024 };

/** Bounds the rate at which a job is read, over all its connections. The rest waits in the sockets, so nothing is lost. */
export class HookFlow {
  #messages = AT_ONCE.messages;
  #bytes = AT_ONCE.bytes;
  #at = performance.now();

  get wait(): number {
    this.#refill();
    const messages = (1 - this.#messages) / PER_SECOND.messages;
    const bytes = (1 - this.#bytes) / PER_SECOND.bytes;
    return Math.max(0, Math.ceil(1000 * Math.max(messages, bytes)));
  }

  took(bytes: number, messages = 0): void {
    this.#bytes -= bytes;
    this.#messages -= messages;
  }

  #refill(): void {
    const now = performance.now();
    const seconds = (now - this.#at) / 1000;
    this.#at = now;
    this.#messages = Math.min(AT_ONCE.messages, this.#messages + seconds * PER_SECOND.messages);
    this.#bytes = Math.min(AT_ONCE.bytes, this.#bytes + seconds * PER_SECOND.bytes);
  }
}

/** Longer than any message (some 40 KiB, with a traceback): the connection is closed. */
const LONGEST_LINE = 256 * 1024;
const NEWLINE = 0x0a;

/** One connection of the hook, split into lines at the launch's rate. */
export class HookConnection {
  /** Complete lines that wait. */
  #whole: Buffer = Buffer.alloc(0);
  /** An incomplete line, in a growing buffer: it may come byte by byte. */
  #part: Buffer = Buffer.alloc(0);
  #length = 0;
  #timer: NodeJS.Timeout | null = null;

  constructor(
    private readonly socket: Socket,
    private readonly flow: HookFlow,
    private readonly on: { line: (line: string) => void; tooLong: () => void },
  ) {
    socket.on('data', (chunk: Buffer) => this.#take(chunk));
    socket.on('close', () => {
      if (this.#timer !== null) clearTimeout(this.#timer);
      this.#whole = this.#part = Buffer.alloc(0);
      this.#length = 0;
    });
  }

  #take(chunk: Buffer): void {
    this.flow.took(chunk.length);
    const end = chunk.lastIndexOf(NEWLINE) + 1;
    if (end > 0) {
      this.#whole = Buffer.concat([this.#whole, this.#part.subarray(0, this.#length), chunk.subarray(0, end)]);
      this.#length = 0;
    }
    this.#add(chunk.subarray(end));
    if (this.#length > LONGEST_LINE) {
      this.on.tooLong();
      this.socket.destroy();
      return;
    }
    this.#pump();
  }

  #add(bytes: Buffer): void {
    const length = this.#length + bytes.length;
    if (length > this.#part.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(length, 2 * this.#part.length, 256));
      this.#part.copy(larger, 0, 0, this.#length);
      this.#part = larger;
    }
    bytes.copy(this.#part, this.#length);
    this.#length = length;
  }

  /** Passes lines on at the flow's rate; the socket is read again when all are through. */
  #pump(): void {
    while (this.#whole.length > 0 && !this.socket.destroyed) {
      const { wait } = this.flow;
      if (wait > 0) {
        this.#later(wait);
        return;
      }
      const end = this.#whole.indexOf(NEWLINE);
      const line = this.#whole.toString('utf8', 0, end);
      this.#whole = this.#whole.subarray(end + 1);
      this.flow.took(0, 1);
      this.on.line(line);
    }
    const { wait } = this.flow;
    if (wait > 0) this.#later(wait);
    else this.socket.resume();
  }

  #later(ms: number): void {
    this.socket.pause();
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      this.#pump();
    }, ms).unref();
  }
}
