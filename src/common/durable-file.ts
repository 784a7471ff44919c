import { randomBytes } from 'node:crypto';
import { chmodSync, closeSync, fsyncSync, openSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';

/** Writes a file whole or not at all, through a kill, a power cut or a full disk. Throws the file system's error. */
export function writeDurably(path: string, text: string): void {
  writeWhole(path, text, true);
  syncFolder(dirname(path));
}

/** Writes a file of 0600 to `<path>.<pid>.tmp` and renames it. Throws the file system's error. */
export function writeWhole(path: string, text: string | Buffer, flush = false): void {
  const side = `${path}.${process.pid}.tmp`;
  try {
    rmSync(side, { force: true }); // what a crash left, or a link that a job put there
    writeFileSync(side, text, { mode: 0o600, flag: 'wx', flush });
    renameSync(side, path);
  } catch (error) {
    rmSync(side, { force: true }); // a full disk leaves half of it
    throw error;
  }
}

/** Flushes a folder's entries to the disk. Some file systems cannot; the files themselves are whole nevertheless. */
function syncFolder(path: string): void {
  const folder = openSync(path, 'r');
  try {
    fsyncSync(folder);
  } catch (error) {
    if (!['EINVAL', 'ENOTSUP', 'EBADF'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
  } finally {
    closeSync(folder);
  }
}

/** The random token in a file of 0600, made by whoever comes first. `bytes`: its entropy; `least`: its least length. */
export function tokenIn(path: string, { bytes, least }: { bytes: number; least: number }): string {
  for (;;) {
    try {
      const token = readFileSync(path, 'utf8').trim();
      if (/^[\w-]{1,100}$/.test(token) && token.length >= least) {
        chmodSync(path, 0o600);
        return token;
      }
      rmSync(path, { force: true }); // cut off by a full disk
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    }
    try {
      const made = randomBytes(bytes).toString('base64url');
      writeFileSync(path, made, { mode: 0o600, flag: 'wx', flush: true });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
  }
}
