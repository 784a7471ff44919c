import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { StreamEvents } from '../../contract/http.js';

const ALIVE_MS = 15_000;
/** A page that does not take what it is sent (asleep, or its network is gone) is let go; it asks anew when it is back. */
const MOST_WAITING_BYTES = 16 * 1024 * 1024;

/** One stream of server-sent events. */
export class Sse {
  readonly #response: ServerResponse;
  readonly #abort = new AbortController();
  readonly #sent = new Map<string, string>();
  readonly #timer: NodeJS.Timeout;

  /** Writes the head; the headers that are to go with it have been set on the response. */
  constructor(response: ServerResponse) {
    this.#response = response;
    response.writeHead(200, {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-store',
      'x-accel-buffering': 'no',
    });
    response.once('close', () => this.close());
    response.on('error', () => this.close());
    this.#timer = setInterval(() => this.#write(': alive\n\n'), ALIVE_MS);
    this.#timer.unref();
    this.#write('retry: 1500\n\n');
  }

  /** Aborted when the page is gone. */
  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  send<E extends keyof StreamEvents>(event: E, data: StreamEvents[E]): void {
    this.#write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
  }

  /** Only if it is not what was sent last under this name. */
  sendChange<E extends keyof StreamEvents>(event: E, data: StreamEvents[E]): void {
    const text = JSON.stringify(data);
    if (this.#sent.get(event) === text) return;
    this.#sent.set(event, text);
    this.#write(`event: ${event}\ndata: ${text}\n\n`);
  }

  /** Resolves when the page keeps up. */
  async drained(): Promise<void> {
    if (!this.#response.writableNeedDrain || this.#abort.signal.aborted) return;
    await once(this.#response, 'drain', { signal: this.#abort.signal }).catch(() => {});
  }

  close(): void {
    if (this.#abort.signal.aborted) return;
    clearInterval(this.#timer);
    this.#abort.abort();
    this.#response.end();
  }

  #write(text: string): void {
    if (this.#abort.signal.aborted) return;
    if (this.#response.writableLength > MOST_WAITING_BYTES) {
      this.close();
      this.#response.destroy();
      return;
    }
    this.#response.write(text);
  }
}
