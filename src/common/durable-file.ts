import { closeSync, fsyncSync, openSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';

/**
 * Writes a file that decides something after a crash, whole or not at all, 0600: to `<path>.<pid>.tmp`, synchronised, then renamed,
 * so that neither a kill nor a power cut nor a full disk leaves a part of it. Throws what the file system says.
 */
export function writeDurably(path: string, text: string): void {
  const side = `${path}.${process.pid}.tmp`;
  try {
    rmSync(side, { force: true }); // what a crash left, or a link that a job put there
    writeFileSync(side, text, { mode: 0o600, flag: 'wx', flush: true });
    renameSync(side, path);
  } catch (error) {
    rmSync(side, { force: true }); // a full disk leaves half of it
    throw error;
  }
  syncFolder(dirname(path));
}

/** Has the names in a folder on the disk. Some file systems cannot: the files themselves are whole all the same. */
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
