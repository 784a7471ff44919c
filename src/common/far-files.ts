import { type ChildProcess, spawn } from 'node:child_process';
import { readlinkSync } from 'node:fs';
import { dirname } from 'node:path';
import { OomtuneError } from './errors.js';
import { systemText } from './regular-file.js';
import { TimeUp, within } from './within.js';

/** File systems whose calls wait for another machine or process, and cannot be interrupted if that is gone. */
const FAR =
  /^(9p|afs|autofs|beegfs|ceph|cifs|coda|davfs|fuse|fuseblk|gfs2?|glusterfs|gpfs|lustre|ncpfs|nfs4?|ocfs2|orangefs|panfs|pvfs2?|smb3?|smbfs|virtiofs|wekafs)(\.|$)/;
/** As in the kernel. */
const MOST_LINKS = 40;

/** Mounts that are being asked: one process each, however many wait for it. */
const asked = new Map<string, { child: ChildProcess; answered: Promise<boolean> }>();

/** Returns once the paths' network file systems answer a child process, as a call may block for ever. Throws OOMTUNE_FILES_SILENT. */
export async function filesAnswer(paths: string[], ms: number, signal: AbortSignal | null): Promise<void> {
  const far = farMounts();
  if (far.size === 0) return;
  const mounts = new Map<string, string>();
  for (const path of paths) {
    const mount = mountOn(path, far);
    if (mount !== null && !mounts.has(mount)) mounts.set(mount, path);
  }
  await Promise.all(
    [...mounts].map(async ([mount, path]) => {
      try {
        await within(ms, signal, async (over) => {
          while (!over.aborted && !(await ask(mount, path))); // one whose time was up ended it for all
        });
      } catch (error) {
        asked.get(mount)?.child.kill('SIGKILL'); // heard where the kernel lets it; the next to ask starts anew then
        throw error instanceof TimeUp ? silent(path, mount, error) : error;
      }
    }),
  );
}

/** False: whoever asked first gave up. */
function ask(mount: string, path: string): Promise<boolean> {
  const known = asked.get(mount);
  if (known !== undefined) return known.answered;
  // Attributes may be cached where the contents cannot be read
  const script = 'stat -L -- "$1" && [ -f "$1" ] && head -c 1 -- "$1"';
  const child = spawn('/bin/sh', ['-c', script, 'sh', path], { cwd: '/', stdio: 'ignore', detached: true });
  child.unref();
  const answered = new Promise<boolean>((resolve) => {
    child.once('error', () => resolve(true)); // it cannot be asked
    child.once('exit', (code) => resolve(code !== null));
  }).finally(() => asked.delete(mount));
  asked.set(mount, { child, answered });
  return answered;
}

/** Mount points of such file systems, unless another mount hides them. */
function farMounts(): Set<string> {
  const found = new Set<string>();
  for (const line of systemText('/proc/self/mountinfo').split('\n')) {
    const [before = '', after = ''] = line.split(' - ');
    const point = before
      .split(' ')[4]
      ?.replace(/\\([0-7]{3})/g, (_, code) => String.fromCharCode(Number.parseInt(code, 8)));
    if (point === undefined) continue;
    if (FAR.test(after.split(' ', 1)[0] as string)) found.add(point);
    else found.delete(point);
  }
  return found;
}

/** The first of the mounts on a path, links followed; found without touching the mount. */
function mountOn(path: string, far: Set<string>): string | null {
  if (far.has('/')) return '/';
  const left = path.split('/');
  let at = '/';
  for (let links = 0; left.length > 0; ) {
    const name = left.shift() as string;
    if (name === '' || name === '.') continue;
    if (name === '..') {
      at = dirname(at);
      continue;
    }
    const next = at === '/' ? `/${name}` : `${at}/${name}`;
    if (far.has(next)) return next;
    const link = linkAt(next);
    if (link === null) return null;
    if (link === '') {
      at = next;
      continue;
    }
    links += 1;
    if (links > MOST_LINKS) return null;
    if (link.startsWith('/')) at = '/';
    left.unshift(...link.split('/'));
  }
  return null;
}

/** The target of a link; empty: no link; null: not there, or not readable. */
function linkAt(path: string): string | null {
  try {
    return readlinkSync(path);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EINVAL' ? '' : null;
  }
}

function silent(path: string, mount: string, cause: Error): OomtuneError {
  return new OomtuneError(
    'OOMTUNE_FILES_SILENT',
    `${path} stands on a file system that does not answer (${mount}).`,
    'See whether its server (NFS) or its process (FUSE) lives; try again when it answers.',
    { cause },
  );
}
