import { chmodSync, rmSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import type { Log } from '../../common/log.js';
import { type HookMessage, type HookOrder, hookMessage } from '../../contract/hook.js';
import { HookConnection, HookFlow } from './hook-connection.js';

/** One for each rank on this host, at most. */
const MOST_CONNECTIONS = 256;
/** A launch with more invalid messages is not read any more. */
const MOST_MISTAKES = 1000;
/** More mistakes are only counted in the log. */
const LOGGED_MISTAKES = 3;
/** Messages that a new connection counts for, to bound jobs that only connect. */
const CONNECTION_MESSAGES = 10;

/** The fork server's number in place of a rank. */
export const FORK_SERVER = -1;

/** A rank's message; `gone`: its connection closed. */
export type HookEvent = { rank: number; pid: number } & ({ message: HookMessage } | { gone: true });

/**
 * The worker's end of the hook's socket: one connection a rank, JSON lines both ways, in order. The job is not trusted: what
 * does not parse is dropped and counted; connections, bytes, messages and mistakes are bounded.
 */
export class HookServer {
  readonly #server: Server;
  readonly #all = new Set<Socket>();
  readonly #ranks = new Map<number, Socket>();
  readonly #flow = new HookFlow();
  #mistakes = 0;
  #closed = false;

  private constructor(
    private readonly path: string,
    private readonly log: Log,
    private readonly listener: (event: HookEvent) => void,
  ) {
    this.#server = createServer((socket) => this.#accept(socket));
    this.#server.maxConnections = MOST_CONNECTIONS;
    this.#server.on('drop', () => this.#mistake({}, 'the hook made too many connections'));
    this.#server.on('error', (error) => this.log.warn({ err: error }, 'the socket of the hook failed'));
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

  /** Sends to every rank, and to the fork server. */
  broadcast(order: HookOrder): void {
    const line = `${JSON.stringify(order)}\n`;
    for (const socket of this.#ranks.values()) socket.write(line);
  }

  tell(rank: number, order: HookOrder): void {
    this.#ranks.get(rank)?.write(`${JSON.stringify(order)}\n`);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const socket of this.#all) socket.destroy();
    this.#server.close();
    rmSync(this.path, { force: true });
    const untold = this.#mistakes - LOGGED_MISTAKES;
    if (untold > 0) this.log.warn({ untold }, 'the hook sent more that is no message');
  }

  #accept(socket: Socket): void {
    if (this.#closed || this.#flow.wait > 0) {
      socket.destroy();
      this.#mistake({}, 'the hook connects too often');
      return;
    }
    this.#flow.took(0, CONNECTION_MESSAGES);
    this.#all.add(socket);
    let rank: number | null = null;
    let pid = 0;
    const line = (text: string): void => {
      const message = this.#parse(text);
      if (message === null) return;
      if (message.t === 'hello' || message.t === 'fork_server') {
        if (rank !== null) return; // it has said who it is
        rank = message.t === 'hello' ? message.rank : FORK_SERVER;
        pid = message.pid;
        this.#ranks.set(rank, socket);
      }
      if (rank !== null) this.listener({ rank, pid, message });
    };
    const tooLong = (): void => this.#mistake({}, 'the hook sent a line without end');
    new HookConnection(socket, this.#flow, { line, tooLong });
    socket.on('error', (error) => this.log.debug({ err: error }, 'hook connection'));
    socket.on('close', () => {
      this.#all.delete(socket);
      if (rank === null) return;
      if (this.#ranks.get(rank) === socket) this.#ranks.delete(rank);
      this.listener({ rank, pid, gone: true });
    });
  }

  #parse(line: string): HookMessage | null {
    if (line.trim() === '') return null;
    let value: unknown;
    try {
      value = JSON.parse(line);
    } catch (error) {
      this.#mistake({ err: error }, 'the hook sent a line that is no JSON');
      return null;
    }
    const parsed = hookMessage.safeParse(value);
    if (parsed.success) return parsed.data;
    const issues = parsed.error.issues.slice(0, 3).map(({ code, path }) => ({ code, path: path.slice(0, 4) }));
    this.#mistake({ issues }, 'the hook sent a message that is not known');
    return null;
  }

  /** After too many it closes the socket for good, with a goodbye in the hook's place. */
  #mistake(details: object, text: string): void {
    if (this.#closed) return;
    this.#mistakes += 1;
    if (this.#mistakes <= LOGGED_MISTAKES) this.log.warn(details, text);
    if (this.#mistakes < MOST_MISTAKES) return;
    this.log.warn({ mistakes: this.#mistakes }, 'the hook is not listened to any more: it sends what no hook does');
    this.close();
    this.listener({ rank: 0, pid: 0, message: { t: 'goodbye', reason: 'flood', message: text } });
  }
}
