import { chmodSync, lstatSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { dirname } from 'node:path';
import { OomtuneError } from '../../common/errors.js';
import type { Log } from '../../common/log.js';
import { answer, type Calls, type Held } from './calls.js';
import { Channel, ChannelClosed, encodeError, type Inbox } from './channel.js';
import type { Peer, Peers } from './peer.js';

/** One message: a submission with its command and options. */
const MOST_BYTES = 4 * 1024 ** 2;
/** Of one user, who must not keep others out. */
const MOST_CONNECTIONS = 256;
const MOST_UNFINISHED_BYTES = 16 * 1024 ** 2;
const MOST_CALLS = 64;
const MESSAGE_MS = 10_000;

interface Guest {
  connections: number;
  inbox: Inbox;
}

interface ServerParts {
  path: string;
  peers: Peers;
  calls: Calls;
  log: Log;
}

/** The daemon's local socket: who calls is told by the kernel, and each call is checked for what that user may do. */
export class SystemServer {
  readonly #server: Server;
  readonly #guests = new Map<number, Guest>();
  readonly #channels = new Set<Channel>();

  constructor(private readonly parts: ServerParts) {
    this.#server = createServer((socket) => this.#admit(socket));
  }

  /** Rejects if the path cannot be listened on. */
  async listen(): Promise<void> {
    const { path } = this.parts;
    const folder = dirname(path);
    mkdirSync(folder, { recursive: true, mode: 0o755 });
    checkFolder(folder);
    // Listens under another name, which Node removes when it ends: that the socket stays tells clients that there is a daemon for
    // the machine, though it is down. Ours is the only one, as it holds the lock of its home.
    const fresh = `${path}.new`;
    rmSync(fresh, { force: true });
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(fresh, () => {
        this.#server.off('error', reject);
        resolve();
      });
    });
    chmodSync(fresh, 0o666); // everybody may ask; what is answered depends on who asks
    renameSync(fresh, path);
  }

  async close(): Promise<void> {
    for (const channel of this.#channels) channel.close();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  #admit(socket: Socket): void {
    socket.on('error', () => {}); // it is closed then, which is heard
    let peer: Peer;
    try {
      peer = this.parts.peers.of(socket);
    } catch (error) {
      this.#turnAway(socket, error);
      return;
    }
    const guest = this.#guests.get(peer.uid) ?? { connections: 0, inbox: { bytes: 0, most: MOST_UNFINISHED_BYTES } };
    if (guest.connections >= MOST_CONNECTIONS) {
      const why = `${peer.name} has ${MOST_CONNECTIONS} connections to the daemon open.`;
      this.#turnAway(socket, new OomtuneError('OOMTUNE_NOT_PERMITTED', why, 'End some of them first.'));
      return;
    }
    guest.connections += 1;
    this.#guests.set(peer.uid, guest);
    this.#serve(socket, peer, guest);
  }

  /** Says why, as the answer to whatever the first call would be. */
  #turnAway(socket: Socket, error: unknown): void {
    if (!(error instanceof OomtuneError)) this.parts.log.warn({ err: error }, 'a client could not be told apart');
    socket.end(`${JSON.stringify({ id: 1, error: encodeError(error) })}\n`);
    setTimeout(() => socket.destroy(), 1000).unref();
  }

  #serve(socket: Socket, peer: Peer, guest: Guest): void {
    const held: Held = new Map();
    const channel = new Channel(socket, {
      mostBytes: MOST_BYTES,
      mostCalls: MOST_CALLS,
      messageMs: MESSAGE_MS,
      inbox: guest.inbox,
      refusal: (why) => encodeError(cutOff(why)),
      onCall: async (name, args, { signal, note }) => {
        try {
          return await answer(this.parts.calls, name, args, { peer, signal, note, held });
        } catch (error) {
          if (!(error instanceof OomtuneError) && !signal.aborted)
            this.parts.log.warn({ err: error, call: name, uid: peer.uid }, 'a call met a fault of ours');
          throw error;
        }
      },
      onClose: (why) => {
        this.#channels.delete(channel);
        guest.connections -= 1;
        if (guest.connections === 0) this.#guests.delete(peer.uid);
        if (why instanceof ChannelClosed)
          this.parts.log.info({ uid: peer.uid, pid: peer.pid, why: why.message }, 'a client was cut off');
        for (const one of held.values())
          one.leaveAll().catch((error: unknown) => this.parts.log.warn({ err: error }, 'a reservation was not left'));
      },
    });
    this.#channels.add(channel);
  }
}

function cutOff(why: string): OomtuneError {
  return new OomtuneError(
    'OOMTUNE_NOT_PERMITTED',
    `The daemon of this machine cut the connection off: ${why}.`,
    `A connection may have ${MOST_CALLS} calls at a time and messages of ${MOST_BYTES / 1024 ** 2} MiB, each sent within ${MESSAGE_MS / 1000} s.`,
  );
}

/** A folder in which others can put another socket into this one's place is no place for it. Throws OOMTUNE_HOME_UNUSABLE. */
function checkFolder(folder: string): void {
  const { uid, mode } = lstatSync(folder);
  const own = process.geteuid?.() ?? 0;
  if ((uid === own || uid === 0) && (mode & 0o022) === 0) return;
  throw new OomtuneError(
    'OOMTUNE_HOME_UNUSABLE',
    `The folder ${folder} of the daemon's socket can be written to by others.`,
    `chown root ${folder} && chmod 0755 ${folder}, or name another path by OOMTUNE_SYSTEM_SOCKET.`,
  );
}
