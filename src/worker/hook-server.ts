import { chmodSync, rmSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import type { Log } from '../common/log.js';
import { type HookMessage, type HookOrder, hookMessage } from './hook-messages.js';

/** A line longer than this is no message of ours: the peer is dropped. */
const LONGEST_LINE = 1024 * 1024;

/** A message and the rank that sent it; `gone` when that rank's connection ended. */
export type HookEvent = { rank: number; message: HookMessage } | { rank: number; gone: true };

/**
 * The worker's end of the hook's socket: one connection a rank, JSON lines both ways. Messages are handed on in the
 * order in which they came; whatever does not parse is logged and dropped, since the job on the other end is not trusted.
 */
export class HookServer {
  readonly #server: Server;
  readonly #path: string;
  readonly #log: Log;
  readonly #sockets = new Map<number, Socket>();
  readonly #listener: (event: HookEvent) => void;

  private constructor(path: string, log: Log, listener: (event: HookEvent) => void) {
    this.#path = path;
    this.#log = log;
    this.#listener = listener;
    this.#server = createServer((socket) => this.#accept(socket));
  }

  static async listen(path: string, log: Log, listener: (event: HookEvent) => void): Promise<HookServer> {
    const hook = new HookServer(path, log, listener);
    rmSync(path, { force: true });
    await new Promise<void>((resolve, reject) => {
      hook.#server.once('error', reject);
      hook.#server.listen(path, () => resolve());
    });
    chmodSync(path, 0o600);
    return hook;
  }

  /** Sends to every rank that is connected. */
  broadcast(order: HookOrder): void {
    const line = `${JSON.stringify(order)}\n`;
    for (const socket of this.#sockets.values()) socket.write(line);
  }

  close(): void {
    for (const socket of this.#sockets.values()) socket.destroy();
    this.#server.close();
    rmSync(this.#path, { force: true });
  }

  #accept(socket: Socket): void {
    let rank: number | null = null;
    let rest = '';
    socket.setEncoding('utf8');
    socket.on('data', (chunk: string) => {
      rest += chunk;
      for (let at = rest.indexOf('\n'); at >= 0; at = rest.indexOf('\n')) {
        const message = this.#parse(rest.slice(0, at));
        rest = rest.slice(at + 1);
        if (message === null) continue;
        if (message.t === 'hello') {
          rank = message.rank;
          this.#sockets.set(rank, socket);
        }
        if (rank !== null) this.#listener({ rank, message });
      }
      if (rest.length > LONGEST_LINE) socket.destroy();
    });
    socket.on('error', (error) => this.#log.debug({ err: error }, 'hook connection'));
    socket.on('close', () => {
      if (rank === null || this.#sockets.get(rank) !== socket) return;
      this.#sockets.delete(rank);
      this.#listener({ rank, gone: true });
    });
  }

  #parse(line: string): HookMessage | null {
    if (line.trim() === '') return null;
    let value: unknown;
    try {
      value = JSON.parse(line);
    } catch (error) {
      this.#log.warn({ err: error }, 'the hook sent a line that is no JSON');
      return null;
    }
    const parsed = hookMessage.safeParse(value);
    if (parsed.success) return parsed.data;
    this.#log.warn({ issues: parsed.error.issues.slice(0, 3) }, 'the hook sent a message that is not known');
    return null;
  }
}
