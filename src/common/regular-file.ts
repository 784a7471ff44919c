import { closeSync, constants, fstatSync, openSync, readdirSync, readFileSync, readSync, statSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';

/** Follows no link, and does not wait for a pipe's writer. */
const FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY;

interface RegularFile {
  fd: number;
  /** Bytes, when it was opened. */
  size: number;
  inode: number;
}

/** Opens a file in a folder that a job can write to; null: missing, or no regular file (a link, a pipe, a device). */
export function openRegular(path: string): RegularFile | null {
  let fd: number;
  try {
    fd = openSync(path, FLAGS);
  } catch {
    return null;
  }
  const found = fstatSync(fd);
  if (found.isFile()) return { fd, size: found.size, inode: found.ino };
  closeSync(fd);
  return null;
}

/** The same, asynchronous. The caller closes it. */
export async function openRegularHandle(path: string): Promise<FileHandle | null> {
  const handle = await open(path, FLAGS).catch(() => null);
  if (handle === null || (await handle.stat()).isFile()) return handle;
  await handle.close();
  return null;
}

/** The text of such a file. Throws the system's error if it is missing, or larger than `most` bytes. */
export function readRegular(path: string, most: number): string {
  const fd = openSync(path, FLAGS);
  try {
    const found = fstatSync(fd);
    if (!found.isFile()) throw new Error(`${path} is not a regular file`);
    if (found.size > most)
      throw new Error(`${path} has ${found.size} bytes, and ${most} are the most that it may have`);
    const buffer = Buffer.alloc(found.size);
    let count = 0;
    for (let got = -1; got !== 0 && count < buffer.length; count += got)
      got = readSync(fd, buffer, count, buffer.length - count, count);
    return buffer.toString('utf8', 0, count);
  } finally {
    closeSync(fd);
  }
}

/** The last bytes of such a file from byte `from` on as text, `most` at most, and whether there are more before them; null: missing, or no regular file. */
export function endOfRegular(path: string, most: number, from = 0): { text: string; cut: boolean } | null {
  const file = openRegular(path);
  if (file === null) return null;
  const { fd, size } = file;
  try {
    const length = Math.max(0, size - from);
    const buffer = Buffer.alloc(Math.min(length, most));
    const count = readSync(fd, buffer, 0, buffer.length, size - buffer.length);
    return { text: buffer.toString('utf8', 0, count), cut: length > most };
  } finally {
    closeSync(fd);
  }
}

/** The text of a system file; empty if it is missing or unreadable. */
export function systemText(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

/** The names in a folder; none if it is missing or unreadable. */
export function namesIn(path: string): string[] {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}

const LARGEST = 4 * 1024 * 1024;

/** Text of a regular file of reasonable size (4 MiB); null for anything else and for what cannot be read. */
export function readText(path: string): string | null {
  try {
    const status = statSync(path);
    if (!status.isFile() || status.size > LARGEST) return null;
    const text = readFileSync(path, 'utf8');
    return text.includes('\0') ? null : text;
  } catch {
    return null;
  }
}
