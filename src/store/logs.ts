import type { Redis } from 'ioredis';
import type { Connection } from './connection.js';
import type { Keys } from './keys.js';
import { write } from './replies.js';
import { retry } from './retry.js';

/** At most so many pieces of this size (512 KiB), kept a week after the last. */
const PIECES = 64;
const PIECE_BYTES = 8192;
const KEPT_SECONDS = 7 * 24 * 3600;

export interface LogPiece {
  launch: number;
  data: Buffer;
  /** Where in the launch's output it begins, in bytes; too low where the log was rotated faster than it was read. */
  offset: number;
  /** Bytes before it that were left out: the job wrote faster than a tail is worth. */
  skipped: number;
}

/** The end of each job's output, for other hosts. The whole is on the host that runs it. */
export class LogTails {
  constructor(
    private readonly connection: Connection,
    private readonly keys: Keys,
  ) {}

  /** Adds output of any size: only its last part is kept. Returns how many bytes were left out. */
  async append(job: string, launch: number, offset: number, data: Buffer): Promise<void> {
    const most = PIECES * PIECE_BYTES;
    const cut = Math.max(0, data.length - most);
    const pipeline = this.connection.redis.pipeline();
    const key = this.keys.log(job);
    for (let at = cut; at < data.length; at += PIECE_BYTES) {
      const piece = data.subarray(at, at + PIECE_BYTES);
      pipeline.xadd(key, 'MAXLEN', PIECES, '*', 'launch', launch, 'offset', offset + at, 'data', piece);
    }
    pipeline.expire(key, KEPT_SECONDS);
    await write(pipeline);
  }

  /** What the tail holds now. */
  async read(job: string): Promise<LogPiece[]> {
    const entries = await this.connection.redis.xrangeBuffer(this.keys.log(job), '-', '+');
    return (entries as unknown as Entry[]).map(reader());
  }

  /** Pieces as they come, from the beginning of the tail. Ends when `ended` says so and nothing more comes. */
  async *follow(
    job: string,
    options: { signal: AbortSignal; ended: () => Promise<boolean> },
  ): AsyncGenerator<LogPiece> {
    const redis: Redis = this.connection.another();
    const stop = (): void => redis.disconnect();
    options.signal.addEventListener('abort', stop, { once: true });
    let last: string | Buffer = '0';
    const toPiece = reader();
    try {
      while (!options.signal.aborted) {
        const ended = await options.ended(); // asked before the last look: nothing is written after the end
        const ms = ended ? 1 : 1000;
        const look = () => redis.xreadBuffer('COUNT', 16, 'BLOCK', ms, 'STREAMS', this.keys.log(job), last);
        const reply = await retry(look, {
          signal: options.signal,
          onRefused: this.connection.onRefused,
          attended: true,
        });
        const entries = (reply?.[0]?.[1] ?? []) as unknown as Entry[];
        for (const entry of entries) {
          last = entry[0];
          yield toPiece(entry);
        }
        if (ended && entries.length === 0) return;
      }
    } catch (error) {
      if (!options.signal.aborted) throw error;
    } finally {
      options.signal.removeEventListener('abort', stop);
      redis.disconnect();
    }
  }
}

type Entry = [id: Buffer, fields: Buffer[]];

/** Reads entries in order, and tells how much was left out before each. */
function reader(): (entry: Entry) => LogPiece {
  let end = 0;
  let launch = 0;
  return ([, fields]) => {
    const piece: LogPiece = { launch: 1, data: Buffer.alloc(0), offset: 0, skipped: 0 };
    for (let at = 0; at + 1 < fields.length; at += 2) {
      const value = fields[at + 1] as Buffer;
      const name = fields[at]?.toString();
      if (name === 'data') piece.data = value;
      else if (name === 'launch') piece.launch = Number(value.toString()) || 1;
      else if (name === 'offset') piece.offset = Number(value.toString()) || 0;
    }
    piece.skipped = Math.max(0, piece.offset - (piece.launch === launch ? end : 0));
    launch = piece.launch;
    end = piece.offset + piece.data.length;
    return piece;
  };
}
