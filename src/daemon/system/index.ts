/**
 * One daemon for all users of a machine. It alone reaches its Redis and devices' reservations; who calls its socket is told by the
 * kernel. Everything that touches a job's files or processes is done by an agent, a process with that user's rights.
 */
import type { Log } from '../../common/log.js';
import { loadNative } from '../../runtime/native.js';
import type { Store } from '../../store/index.js';
import { Homes } from './homes.js';
import { Peers } from './peer.js';
import { readCalls } from './read-calls.js';
import { SystemServer } from './server.js';

export interface SystemSettings {
  /** Where clients find it. */
  socket: string;
  /** Belongs to root; holds the users' folders. */
  home: string;
  /** Its members may do what root may. */
  adminGroup: string;
}

interface SystemParts {
  store: Store;
  log: Log;
  version: string;
}

export class System {
  readonly homes: Homes;
  readonly peers: Peers;
  readonly #server: SystemServer;

  constructor(parts: SystemParts, settings: SystemSettings) {
    const { store, log, version } = parts;
    this.homes = new Homes(settings.home);
    this.peers = new Peers(loadNative().addon, settings.adminGroup);
    const about = {
      version,
      startedAt: new Date().toISOString(),
      homeOf: (peer: { uid: number; gid: number }) => this.homes.of(peer),
    };
    this.#server = new SystemServer({
      path: settings.socket,
      peers: this.peers,
      calls: readCalls(store, about),
      log,
    });
  }

  listen(): Promise<void> {
    return this.#server.listen();
  }

  close(): Promise<void> {
    return this.#server.close();
  }
}
