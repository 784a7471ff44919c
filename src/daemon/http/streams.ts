import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { StringDecoder } from 'node:string_decoder';
import { setTimeout as delay } from 'node:timers/promises';
import { Alarm } from '../../common/within.js';
import type { JobPage, StreamEvents } from '../../contract/http.js';
import { ENDED_STATES } from '../../contract/job.js';
import type { Follower, Store } from '../../store/index.js';
import type { Sampler } from '../observe/sampler.js';
import type { JobFigures } from './job-figures.js';
import { jobPage } from './job-page.js';
import type { JobRows } from './job-rows.js';
import type { Machine } from './machine.js';
import type { Reasons } from './reasons.js';

const ALIVE_MS = 15_000;
/** A page that reads nothing (asleep, offline) is disconnected, and connects again later. */
const MOST_WAITING_BYTES = 16 * 1024 * 1024;

/** One stream of server-sent events. */
class Sse {
  readonly #abort = new AbortController();
  readonly #sent = new Map<string, string>();
  readonly #timer: NodeJS.Timeout;

  /** Writes the head, with the headers set on the response before. */
  constructor(private readonly response: ServerResponse) {
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

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  send<E extends keyof StreamEvents>(event: E, data: StreamEvents[E]): void {
    this.#write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
  }

  /** Unless it equals what was sent last under this name. */
  sendChange<E extends keyof StreamEvents>(event: E, data: StreamEvents[E]): void {
    const text = JSON.stringify(data);
    if (this.#sent.get(event) === text) return;
    this.#sent.set(event, text);
    this.#write(`event: ${event}\ndata: ${text}\n\n`);
  }

  /** Resolves when the page has read enough. */
  async drained(): Promise<void> {
    if (!this.response.writableNeedDrain || this.#abort.signal.aborted) return;
    await once(this.response, 'drain', { signal: this.#abort.signal }).catch(() => {});
  }

  close(): void {
    if (this.#abort.signal.aborted) return;
    clearInterval(this.#timer);
    this.#abort.abort();
    this.response.end();
  }

  #write(text: string): void {
    if (this.#abort.signal.aborted) return;
    if (this.response.writableLength > MOST_WAITING_BYTES) {
      this.close();
      this.response.destroy();
      return;
    }
    this.response.write(text);
  }
}

export interface StreamParts {
  store: Store;
  rows: JobRows;
  figures: JobFigures;
  machine: Machine;
  sampler: Sampler;
  follower: Follower;
  reasons: Reasons;
  host: string;
  version: string;
}

/** Each has a connection here, and one to Redis for its log: enough for people, not for a leaking loop. */
const MOST_STREAMS = 64;
const LOOK_MS = 1000;
const MACHINE_MS = 2000;

/** The open pages and their subscriptions. */
export class Streams {
  readonly #open = new Set<Sse>();

  constructor(private readonly parts: StreamParts) {}

  get full(): boolean {
    return this.#open.size >= MOST_STREAMS;
  }

  close(): void {
    for (const sse of this.#open) sse.close();
  }

  overview(response: ServerResponse): void {
    const sse = this.#begin(response);
    this.#run(sse, async () => {
      const { rows, stop } = await this.parts.rows.watch((change) => sse.send('jobs', { full: false, ...change }));
      sse.signal.addEventListener('abort', stop);
      if (sse.signal.aborted) stop();
      sse.send('jobs', { full: true, rows, gone: [] });
    });
    this.#repeat(sse, MACHINE_MS, async () => sse.sendChange('machine', await this.parts.machine.view()));
  }

  /** Sends a job's page, its memory and its log. */
  job(response: ServerResponse, id: string): void {
    const sse = this.#begin(response);
    const { sampler, follower, store } = this.parts;
    const alarm = new Alarm();
    const unfollow = follower.onEvent(({ fields }) => fields.job === id && alarm.ring());
    sse.send('memory', { full: true, samples: sampler.history(id)?.samples ?? [] });
    const unsample = sampler.onSample(id, (samples, full) => sse.send('memory', { full, samples }));
    sse.signal.addEventListener('abort', () => {
      unfollow();
      unsample();
    });
    let page: JobPage | null = null;
    this.#run(sse, async () => {
      while (!sse.signal.aborted) {
        const here = sampler.history(id);
        const seen = here ?? (await store.memory.get(id)); // by an earlier daemon, or by that of another host
        page = await jobPage(this.parts, id, seen?.budget_bytes ?? null);
        sse.sendChange('job', page);
        if (sampler.history(id) === null && seen !== null)
          sse.sendChange('memory', { full: true, samples: seen.samples });
        await alarm.sleep(LOOK_MS, sse.signal);
      }
    });
    this.#run(sse, async () => {
      while (!sse.signal.aborted) {
        await this.#log(sse, id);
        // Ended: nothing more comes unless it is retried
        while (!sse.signal.aborted && (page === null || ENDED_STATES.includes(page.state))) await delay(LOOK_MS);
        sse.send('log', { text: '', launch: 0, skipped: 0, again: true });
      }
    });
  }

  /** Sends the log as plain text that names gaps. */
  async #log(sse: Sse, id: string): Promise<void> {
    const { store } = this.parts;
    const ended = async (): Promise<boolean> => {
      const job = await store.jobs.get(id);
      return job === null || ENDED_STATES.includes(job.state);
    };
    let launch = 0;
    let decoder = new StringDecoder('utf8');
    for await (const piece of store.logs.follow(id, { signal: sse.signal, ended })) {
      if (piece.launch !== launch || piece.skipped > 0) decoder = new StringDecoder('utf8');
      launch = piece.launch;
      sse.send('log', { launch, text: decoder.write(piece.data), skipped: piece.skipped });
      await sse.drained();
    }
  }

  #begin(response: ServerResponse): Sse {
    const sse = new Sse(response);
    this.#open.add(sse);
    sse.signal.addEventListener('abort', () => this.#open.delete(sse));
    sse.send('hello', { host: this.parts.host, version: this.parts.version });
    this.#repeat(sse, LOOK_MS, async () => sse.sendChange('redis', { up: this.parts.store.connection.ready }));
    return sse;
  }

  #run(sse: Sse, task: () => Promise<void>): void {
    task().catch(() => sse.close()); // the page comes back by itself
  }

  #repeat(sse: Sse, ms: number, task: () => Promise<void>): void {
    this.#run(sse, async () => {
      while (!sse.signal.aborted) {
        await task();
        await delay(ms, undefined, { signal: sse.signal }).catch(() => {});
      }
    });
  }
}
