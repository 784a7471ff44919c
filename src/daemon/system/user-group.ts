import { chownSync, existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Log } from '../../common/log.js';
import { systemText } from '../../common/regular-file.js';

const ROOT = '/sys/fs/cgroup';
/** What the kernel lets who owns them do: make groups below, and move processes between them. */
const DELEGATED = ['cgroup.procs', 'cgroup.threads', 'cgroup.subtree_control'];

let told = false;

/** Puts a process into a control group of its user, below the daemon's own, where each job gets one. Without cgroups v2: nowhere. */
export function userGroup({ uid, gid }: { uid: number; gid: number }, pid: number, log: Log): void {
  const own = /^0::(\/.*)$/m.exec(systemText('/proc/self/cgroup'))?.[1];
  const base = [ROOT, join(ROOT, 'unified')].find((folder) => existsSync(join(folder, 'cgroup.controllers')));
  if (own === undefined || base === undefined) return;
  const folder = join(base, own, `oomtune-user-${uid}`);
  try {
    mkdirSync(folder, { recursive: true, mode: 0o755 });
    for (const path of [folder, ...DELEGATED.map((name) => join(folder, name))]) chownSync(path, uid, gid);
    writeFileSync(join(folder, 'cgroup.procs'), String(pid));
  } catch (error) {
    if (!told)
      log.warn({ err: error }, 'users have no control groups of their own: systemd has to delegate (Delegate=yes)');
    told = true;
  }
}
