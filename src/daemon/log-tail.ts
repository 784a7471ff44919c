import { statSync } from 'node:fs';
import { type FileHandle, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Log } from '../common/log.js';
import { openRegularHandle } from '../common/regular-file.js';
import { Alarm } from '../common/within.js';
import { isRefusal, type LogTails, retry } from '../store/index.js';

const LOOK_MS = 250;
/** Bytes of one read, four times a second. The tail of a faster job has gaps. */
const MOST_BYTES = 256 * 1024;
/** A job could rename its log as fast as we open it. */
const MOST_ROTATIONS = 16;

/** Copies the end of a growing log into Redis, one piece at a time; skips what it is too slow for, which stays on disk. */
export class LogTail {
  #closing = false;
  readonly #alarm = new Alarm();
  readonly #done: Promise<void>;
  #handle: FileHandle | null = null;
  #inode = 0;
  /** The position in the open file; beside it, how much was written before that file. */
  #at = 0;
  #before = 0;

  /** `goOn`: an earlier daemon may have copied a part. */
  constructor(
    private readonly parts: { logs: LogTails; log: Log },
    private readonly launch: { job: string; launch: number; dir: string },
    goOn: boolean,
  ) {
    this.#done = this.#follow(goOn);
  }

  async close(): Promise<void> {
    this.#closing = true;
    this.#alarm.ring();
    await this.#done;
  }

  async #follow(goOn: boolean): Promise<void> {
    try {
      const pieces = goOn ? await retry(() => this.parts.logs.read(this.launch.job)) : [];
      const known = pieces.findLast((piece) => piece.launch === this.launch.launch);
      let skipTo = known === undefined ? 0 : known.offset + known.data.length;
      for (;;) {
        await this.#alarm.sleep(this.#closing ? 0 : LOOK_MS);
        if (this.#closing) break;
        skipTo = await this.#copy(skipTo).catch((error: unknown) => {
          if (!isRefusal(error)) throw error;
          return skipTo; // the next look copies it
        });
      }
      await this.#copy(skipTo);
    } catch (error) {
      this.parts.log.warn({ err: error }, 'the end of a log is not copied any more: the log itself stands on disk');
    } finally {
      await this.#handle?.close().catch(() => {});
    }
  }

  async #copy(skipTo: number): Promise<number> {
    if (this.#handle === null) {
      // Most short jobs print nothing, and a look is far cheaper than to open
      if ((statSync(join(this.launch.dir, 'log'), { throwIfNoEntry: false })?.size ?? 0) === 0) return skipTo;
      this.#handle = await openRegularHandle(join(this.launch.dir, 'log'));
      if (this.#handle === null) return skipTo;
      const { ino, size } = await this.#handle.stat();
      this.#inode = ino;
      this.#at = Math.min(skipTo, size); // an earlier daemon's copy goes on where it stood
    }
    for (let rotations = 0; rotations < MOST_ROTATIONS; rotations += 1) {
      const { size } = await this.#handle.stat();
      if (size < this.#at) {
        // The job truncated it, so the content is new
        this.#before += this.#at;
        this.#at = 0;
      }
      const from = Math.max(this.#at, size - MOST_BYTES);
      if (size > from) {
        const buffer = Buffer.allocUnsafe(size - from);
        const { bytesRead } = await this.#handle.read(buffer, 0, buffer.length, from);
        await this.parts.logs.append(
          this.launch.job,
          this.launch.launch,
          this.#before + from,
          buffer.subarray(0, bytesRead),
        );
        this.#at = from + bytesRead;
      }
      const now = await stat(join(this.launch.dir, 'log')).catch(() => null);
      if (now === null || now.ino === this.#inode) break;
      // Rotated: the rest of the old file is read first.
      if ((await this.#handle.stat()).size > this.#at) continue;
      await this.#handle.close();
      this.#before += this.#at;
      this.#at = 0;
      this.#handle = await openRegularHandle(join(this.launch.dir, 'log'));
      if (this.#handle === null) break;
      // Of the open file, as the path may have been rotated since, and inode numbers are reused.
      this.#inode = (await this.#handle.stat()).ino;
    }
    return 0;
  }
}
