import type { Socket } from 'node:net';
import { OomtuneError } from '../../common/errors.js';
import type { Addon } from '../../runtime/native.js';

/** Who calls: as the kernel noted it when the socket was connected, and as the system knows the account. */
export interface Peer {
  uid: number;
  pid: number;
  /** The account's. */
  name: string;
  gid: number;
  home: string;
  shell: string;
  /** May steer everybody's jobs, and see all of them: root, and the members of the admin group. */
  admin: boolean;
}

/** Directories of accounts (LDAP) may be slow, and are asked in the daemon's own thread. */
const KEPT_MS = 60_000;

export class Peers {
  readonly #known = new Map<number, { at: number; account: Omit<Peer, 'pid'> }>();

  constructor(
    private readonly addon: Pick<Addon, 'peerCredentials' | 'accountOf' | 'groupNamed'>,
    private readonly adminGroup: string,
  ) {}

  /** Throws OOMTUNE_NOT_PERMITTED for a process without an account. */
  of(socket: Socket): Peer {
    const { pid, uid } = this.addon.peerCredentials(descriptorOf(socket));
    return { ...this.account(uid), pid };
  }

  account(uid: number): Omit<Peer, 'pid'> {
    const known = this.#known.get(uid);
    if (known !== undefined && Date.now() - known.at < KEPT_MS) return known.account;
    const found = this.addon.accountOf(uid);
    if (found === null) {
      throw new OomtuneError(
        'OOMTUNE_NOT_PERMITTED',
        `There is no account with the number ${uid} on this machine.`,
        'Jobs run as accounts that the machine knows: `getent passwd` lists them.',
      );
    }
    const { name, gid, home, shell, groups } = found;
    const admins = this.addon.groupNamed(this.adminGroup);
    const admin = uid === 0 || (admins !== null && groups.includes(admins));
    const account = { uid, name, gid, home, shell, admin };
    this.#known.set(uid, { at: Date.now(), account });
    return account;
  }
}

/** Node has no public way to a socket's descriptor. */
function descriptorOf(socket: Socket): number {
  const { _handle: handle } = socket as unknown as { _handle: { fd: number } | null };
  if (handle === null || !(handle.fd >= 0)) throw new Error('the socket has no descriptor: it is closed');
  return handle.fd;
}
