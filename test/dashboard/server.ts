import { once } from 'node:events';
import { type IncomingHttpHeaders, type IncomingMessage, request } from 'node:http';
import { createLog } from '../../src/common/log.js';
import { type HttpParts, type HttpServer, startHttp } from '../../src/daemon/http/index.js';
import { dashboardToken } from '../../src/daemon/http/token.js';
import { createRuntime } from '../../src/runtime/index.js';
import { openStore, type Store } from '../../src/store/index.js';

export interface Answer {
  status: number;
  headers: IncomingHttpHeaders;
  text: string;
  json: { [name: string]: unknown; error?: { code: string; message: string; remedy: string } };
}

export interface Asked {
  method?: string;
  headers?: Record<string, string>;
  body?: string;
  /** Comes with the token. Default: yes. */
  known?: boolean;
}

/** The server as a daemon has it, on a port of its own, with a real Redis and a real runtime behind it. */
export class Dashboard {
  readonly store: Store;
  readonly token: string;
  readonly #http: HttpServer;

  private constructor(store: Store, http: HttpServer, token: string) {
    this.store = store;
    this.token = token;
    this.#http = http;
  }

  static async start(parts: Partial<HttpParts> = {}, url: string | null = null): Promise<Dashboard> {
    const store = parts.store ?? (await openStore({ url, onOutage: () => {} }));
    const log = createLog('test', 'silent');
    const runtime = parts.runtime ?? createRuntime();
    const http = await startHttp({ port: 0, version: '0.0.0', log, ...parts, store, runtime });
    return new Dashboard(store, http, dashboardToken(parts.tokenFile));
  }

  get url(): string {
    return this.#http.url;
  }

  get host(): string {
    return new URL(this.url).host;
  }

  get origin(): string {
    return new URL(this.url).origin;
  }

  async close(): Promise<void> {
    await this.#http.close();
    await this.store.close();
  }

  async ask(path: string, { known = true, ...asked }: Asked = {}): Promise<Answer> {
    const response = await this.#open(path, known, asked);
    let text = '';
    for await (const piece of response.setEncoding('utf8')) text += piece;
    const isJson = response.headers['content-type']?.startsWith('application/json') === true;
    return { status: response.statusCode ?? 0, headers: response.headers, text, json: isJson ? JSON.parse(text) : {} };
  }

  /** A stream of events, as a page follows it. */
  async follow(path: string): Promise<Stream> {
    return new Stream(await this.#open(path, true, {}));
  }

  async #open(path: string, known: boolean, asked: Asked): Promise<IncomingMessage> {
    const { method = 'GET', headers = {}, body } = asked;
    const { hostname, port } = new URL(this.url);
    const who: Record<string, string> = known ? { authorization: `Bearer ${this.token}` } : {};
    // `path` as it stands: a URL would have its dots taken out
    const sent = request({ hostname, port, path, method, headers: { ...who, ...headers }, agent: false });
    sent.end(body);
    const [response] = (await once(sent, 'response')) as [IncomingMessage];
    return response;
  }
}

export class Stream {
  readonly #response: IncomingMessage;
  readonly events: { name: string; data: Record<string, unknown> }[] = [];
  ended = false;
  #rest = '';
  #heard: () => void = () => {};

  constructor(response: IncomingMessage) {
    this.#response = response;
    response.setEncoding('utf8').on('data', (text: string) => this.#take(text));
    response.on('error', () => {});
    response.on('close', () => {
      this.ended = true;
      this.#heard();
    });
  }

  get status(): number {
    return this.#response.statusCode ?? 0;
  }

  /** The first event, of those there and those to come, for which it is true. */
  async until(
    name: string,
    what: (data: Record<string, unknown>) => boolean = () => true,
  ): Promise<Record<string, unknown>> {
    const deadline = Date.now() + 30_000;
    for (let at = 0; ; ) {
      for (; at < this.events.length; at += 1) {
        const event = this.events[at] as { name: string; data: Record<string, unknown> };
        if (event.name === name && what(event.data)) return event.data;
      }
      if (this.ended || Date.now() > deadline) {
        const names = this.events.map((event) => event.name).join(', ');
        throw new Error(`no such ${name}; there were: ${names}: ${JSON.stringify(this.events.at(-1)).slice(0, 2000)}`);
      }
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, 1000);
        this.#heard = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
  }

  close(): void {
    this.#response.destroy();
  }

  #take(text: string): void {
    const frames = (this.#rest + text).split('\n\n');
    this.#rest = frames.pop() ?? '';
    for (const frame of frames) {
      const name = /^event: (.*)$/m.exec(frame)?.[1];
      const data = /^data: (.*)$/m.exec(frame)?.[1];
      if (name !== undefined && data !== undefined) this.events.push({ name, data: JSON.parse(data) });
    }
    this.#heard();
  }
}
