import { readFileSync, statSync } from 'node:fs';

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
