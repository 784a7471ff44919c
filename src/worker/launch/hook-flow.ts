/** How much of a job's hook is listened to. A hook says less than a tenth of it. */
const PER_SECOND = { messages: 500, bytes: 1024 * 1024 };
/** What may come at once: many ranks begin together. */
const AT_ONCE = { messages: 5000, bytes: 8 * 1024 * 1024 };

/**
 * The rate at which a job is listened to, over all its connections. What comes faster waits in the job's own sockets:
 * nothing that a hook says is lost, and a job that never stops costs the daemon next to nothing.
 */
export class HookFlow {
  #messages = AT_ONCE.messages;
  #bytes = AT_ONCE.bytes;
  #at = performance.now();

  /** Milliseconds until more may be read; 0: now. */
  get wait(): number {
    this.#refill();
    const messages = (1 - this.#messages) / PER_SECOND.messages;
    const bytes = (1 - this.#bytes) / PER_SECOND.bytes;
    return Math.max(0, Math.ceil(1000 * Math.max(messages, bytes)));
  }

  /** Counts what was read. */
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
