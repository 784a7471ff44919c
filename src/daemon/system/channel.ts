import type { Duplex } from 'node:stream';
import { ERROR_CODES, type ErrorCode, OomtuneError } from '../../common/errors.js';
import { refusal } from '../../common/refusal.js';
import { type ChannelMessage, channelMessage } from '../../contract/system.js';

/** Answers a call of the other end. The signal is aborted when that gives it up, or is gone. */
export type OnCall = (
  name: string,
  args: unknown[],
  call: { signal: AbortSignal; note: (value: unknown) => void },
) => Promise<unknown>;

/** Bytes that came and are no whole message yet, of all channels that share it. */
export interface Inbox {
  bytes: number;
  readonly most: number;
}

export interface ChannelOptions {
  onCall?: OnCall;
  /** Called once, with the reason where there is one. */
  onClose?: (why: Error | null) => void;
  /** Of one message. */
  mostBytes?: number;
  /** Calls of the other end at a time. */
  mostCalls?: number;
  /** For a message to come whole, from its first byte on; null: as long as it takes. */
  messageMs?: number | null;
  inbox?: Inbox;
  /** Errors that are more than a code, a sentence and a remedy. */
  /** What the other end is told when it is cut off; absent: nothing. */
  refusal?: (why: string) => Record<string, unknown>;
  errors?: { encode(error: unknown): Record<string, unknown>; decode(error: Record<string, unknown>): Error };
}

/** The number of no call: of the message that says why the other end is cut off. */
const CUT_OFF = 0;
const SAY_MS = 1000;
/** What the other end is owed before it counts as one that does not read. */
const MOST_UNREAD = 64 * 1024 ** 2;

interface Pending {
  resolve(value: unknown): void;
  reject(error: Error): void;
  note(value: unknown): void;
}

/** The other end went away, or broke the rules. */
export class ChannelClosed extends Error {
  override name = 'ChannelClosed';
}

/** Calls in both directions over one stream, a line of JSON each. What breaks the rules is cut off. */
export class Channel {
  readonly #pending = new Map<number, Pending>();
  readonly #running = new Map<number, AbortController>();
  #parts: Buffer[] = [];
  #length = 0;
  #last = 0;
  #timer: NodeJS.Timeout | null = null;
  #closed = false;
  #saysWhy = false;
  #gone = new ChannelClosed('The other end is gone.');

  constructor(
    private readonly stream: Duplex,
    private readonly options: ChannelOptions = {},
  ) {
    stream.on('data', (chunk: Buffer) => this.#take(chunk));
    stream.on('error', (error) => this.close(error));
    stream.on('close', () => this.close());
    stream.on('end', () => this.close());
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** Rejects with the other end's error, the signal's reason, or ChannelClosed. */
  call<T>(
    name: string,
    args: unknown[],
    { signal, onNote = () => {} }: { signal?: AbortSignal; onNote?: (value: unknown) => void } = {},
  ): Promise<T> {
    if (signal?.aborted) return Promise.reject(signal.reason);
    if (this.#closed) return Promise.reject(this.#gone);
    this.#last += 1;
    const id = this.#last;
    return new Promise<T>((resolve, reject) => {
      const giveUp = (): void => {
        this.#pending.delete(id);
        this.#send({ id, is: 'abort' });
        reject(signal?.reason);
      };
      const done = (): void => signal?.removeEventListener('abort', giveUp);
      signal?.addEventListener('abort', giveUp, { once: true });
      this.#pending.set(id, {
        resolve: (value) => {
          done();
          resolve(value as T);
        },
        reject: (error) => {
          done();
          reject(error);
        },
        note: onNote,
      });
      const given = args.findLastIndex((one) => one !== undefined) + 1; // JSON would make null of the others
      this.#send({ id, call: name, args: args.slice(0, given) });
    });
  }

  close(why: Error | null = null): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#drop();
    if (!this.#saysWhy) this.stream.destroy();
    if (why !== null) this.#gone = new ChannelClosed(why.message, { cause: why });
    for (const { reject } of this.#pending.values()) reject(this.#gone);
    for (const running of this.#running.values()) running.abort(this.#gone);
    this.#pending.clear();
    this.options.onClose?.(why);
  }

  #take(chunk: Buffer): void {
    let rest = chunk;
    for (let at = rest.indexOf(0x0a); at >= 0 && !this.#closed; at = rest.indexOf(0x0a)) {
      const line = Buffer.concat([...this.#parts, rest.subarray(0, at)]);
      rest = rest.subarray(at + 1);
      this.#drop();
      if (line.length > this.#mostBytes) this.#refuse('too long a message');
      else this.#read(line);
    }
    if (!this.#closed && rest.length > 0) this.#keep(rest);
  }

  get #mostBytes(): number {
    return this.options.mostBytes ?? Number.POSITIVE_INFINITY;
  }

  #keep(part: Buffer): void {
    const { inbox, messageMs } = this.options;
    this.#parts.push(part);
    this.#length += part.length;
    if (inbox !== undefined) inbox.bytes += part.length;
    if (this.#length > this.#mostBytes) this.#refuse('too long a message');
    else if (inbox !== undefined && inbox.bytes > inbox.most) this.#refuse('too many unfinished messages');
    else if (messageMs != null)
      this.#timer ??= setTimeout(() => this.#refuse('an unfinished message'), messageMs).unref();
  }

  /** Forgets what came of an unfinished message. */
  #drop(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    if (this.options.inbox !== undefined) this.options.inbox.bytes -= this.#length;
    this.#parts = [];
    this.#length = 0;
  }

  #refuse(why: string): void {
    const error = this.options.refusal?.(why);
    if (error !== undefined && !this.#closed && this.stream.writableLength === 0) {
      this.#saysWhy = true;
      this.stream.end(`${JSON.stringify({ id: CUT_OFF, error })}\n`, () => this.stream.destroy());
      setTimeout(() => this.stream.destroy(), SAY_MS).unref();
    }
    this.close(new ChannelClosed(why));
  }

  #read(line: Buffer): void {
    const read = readJson(line.toString('utf8'));
    if (read === null) this.#refuse('a message that cannot be read');
    else if ('call' in read) this.#begin(read.id, read.call, read.args);
    else if ('note' in read) this.#pending.get(read.id)?.note(read.note);
    else if ('is' in read) this.#running.get(read.id)?.abort(new DOMException('The caller gave it up.', 'AbortError'));
    else this.#settle(read);
  }

  #settle(read: { id: number } & ({ error: Record<string, unknown> } | { value?: unknown })): void {
    const pending = this.#pending.get(read.id);
    this.#pending.delete(read.id);
    const error = 'error' in read ? (this.options.errors?.decode ?? decodeError)(read.error) : null;
    if (error !== null && read.id === CUT_OFF) this.close(error);
    else if (error !== null) pending?.reject(error);
    else if ('value' in read) pending?.resolve(read.value);
  }

  #begin(id: number, name: string, args: unknown[]): void {
    const { mostCalls = Number.POSITIVE_INFINITY } = this.options;
    if (this.#running.has(id)) this.#refuse('a number that is in use');
    else if (this.#running.size >= mostCalls) this.#refuse('too many calls at a time');
    else this.#answer(id, name, args);
  }

  #answer(id: number, name: string, args: unknown[]): void {
    const controller = new AbortController();
    this.#running.set(id, controller);
    const note = (value: unknown): void => this.#send({ id, is: 'note', note: value ?? null });
    const answered = (async () => this.options.onCall?.(name, args, { signal: controller.signal, note }))();
    answered
      .then(
        (value) => this.#send({ id, value: value ?? null }),
        (error: unknown) => this.#send({ id, error: (this.options.errors?.encode ?? encodeError)(error) }),
      )
      .finally(() => this.#running.delete(id));
  }

  #send(value: Record<string, unknown>): void {
    if (this.#closed) return;
    this.stream.write(`${JSON.stringify(value)}\n`);
    if (this.stream.writableLength > MOST_UNREAD) this.#refuse('answers that nobody reads');
  }
}

function readJson(text: string): ChannelMessage | null {
  try {
    return channelMessage.parse(JSON.parse(text));
  } catch {
    return null;
  }
}

/** What is no error for users stays here: its text may tell what is not the other end's business. */
export function encodeError(error: unknown): Record<string, unknown> {
  const known = error instanceof OomtuneError ? error : refusal(error, null);
  if (known !== null) return { code: known.code, message: known.message, remedy: known.remedy };
  return { code: 'OOMTUNE_INTERNAL', message: 'A fault of the daemon.', remedy: 'Its log tells more; report it.' };
}

export function decodeError({ code, message: said, remedy }: Record<string, unknown>): OomtuneError {
  const known = Object.hasOwn(ERROR_CODES, String(code)) ? (code as ErrorCode) : 'OOMTUNE_INTERNAL';
  return new OomtuneError(known, String(said), String(remedy));
}
