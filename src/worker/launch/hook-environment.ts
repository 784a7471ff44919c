import { createHash } from 'node:crypto';
import { delimiter, join } from 'node:path';
import { homePath, PACKAGE_ROOT } from '../../common/home.js';
import { temporaryFolder } from '../../common/private-folder.js';
import type { SessionRequest } from './session-request.js';

/** The variables that switch the hook on; the inject folder goes first so that Python finds its sitecustomize. */
export function hookEnvironment(request: SessionRequest, socket: string): Record<string, string> {
  const path = [join(PACKAGE_ROOT, 'python', 'inject'), join(PACKAGE_ROOT, 'python')];
  if (request.env.PYTHONPATH) path.push(request.env.PYTHONPATH);
  return {
    PYTHONPATH: path.join(delimiter),
    OOMTUNE_HOOK: request.mode,
    OOMTUNE_HOOK_SOCKET: socket,
    OOMTUNE_HOOK_KNOBS: request.hookKnobs.join(','),
    OOMTUNE_STEPS: String(request.steps),
    ...(request.forks && request.mode === 'probe' ? { OOMTUNE_FORK: '1' } : {}),
  };
}

/** A unix socket's path may have 107 bytes: where the launch folder is deeper, a private folder under /tmp serves. */
export function hookSocketPath(dir: string): string {
  const path = join(dir, 'hook.sock');
  if (Buffer.byteLength(path) <= 107) return path;
  const name = createHash('sha256').update(dir).digest('hex').slice(0, 16);
  return join(temporaryFolder(homePath()), `${name}.sock`);
}
