import { hash } from 'node:crypto';
import { existsSync, rmSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { homePath } from '../common/home.js';
import { temporaryFolder } from '../common/private-folder.js';
import { kindNameOf } from '../contract/device-id.js';
import { KINDS } from '../devices/index.js';
import type { Preload } from '../devices/kind.js';

/** The folder by a path without blanks or colons, which split LD_PRELOAD; perhaps a link. Throws OOMTUNE_HOME_UNUSABLE. */
export function preloadable(folder: string): string {
  if (!/[\s:;]/.test(folder)) return folder;
  const link = join(temporaryFolder(homePath()), `native-${hash('sha256', folder).slice(0, 8)}`);
  if (!existsSync(link)) {
    rmSync(link, { force: true });
    symlinkSync(folder, link);
  }
  return link;
}

/** What loads our libraries into the job, for each kind of its devices. Without a library the kind has no ledger. */
export function preloadEnvironment(devices: string[], env: Record<string, string>, nativeFolder: string): Preload {
  const base = preloadable(nativeFolder);
  const preload: Preload = { env: {}, standIn: null };
  for (const kind of Object.values(KINDS)) {
    if (!devices.some((id) => kindNameOf(id) === kind.name)) continue;
    const more = kind.preload({ ...env, ...preload.env }, base);
    Object.assign(preload.env, more?.env);
    preload.standIn = more?.standIn ?? preload.standIn;
  }
  return preload;
}
