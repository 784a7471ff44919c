import { OomtuneError } from '../../common/errors.js';
import { type Channel, ChannelClosed } from '../../daemon/system/channel.js';
import { remoteLeasing } from '../../daemon/system/remote-leasing.js';
import type { LeaseRequest } from '../../store/lease-request.js';
import type { Lease } from '../../worker/types.js';
import { connectSystem, down } from './client.js';

/** For the daemon to come back; its restart takes seconds. */
const PATIENCE_MS = 30_000;
const AGAIN_MS = 500;
const MOST_TRIES = 10;

/** The way of a foreground command to the machine's daemon. What it runs must not be lost by a restart of that: it connects anew. */
export class Line {
  #channel: Channel;
  #said = false;

  constructor(
    private readonly path: string,
    channel: Channel,
  ) {
    this.#channel = channel;
  }

  get channel(): Channel {
    return this.#channel;
  }

  /** For what may be asked twice. Throws OOMTUNE_DAEMON_DOWN where the daemon does not come back. */
  async repeat<T>(ask: (channel: Channel) => Promise<T>, signal?: AbortSignal): Promise<T> {
    for (let tries = 1; ; tries += 1) {
      const channel = await this.#connected(signal);
      try {
        return await ask(channel);
      } catch (error) {
        if (!(error instanceof ChannelClosed)) throw error;
        if (tries === MOST_TRIES || error.cause instanceof OomtuneError) throw down(this.path, error);
      }
    }
  }

  /** The reservation belongs to the connection that it was granted on; when that is lost the daemon keeps it for this process. */
  async acquire(request: LeaseRequest): Promise<Lease> {
    const lease = await this.repeat((channel) => remoteLeasing(channel).acquire(request), request.signal);
    const told = <T>(telling: Promise<T>, otherwise: T): Promise<T> =>
      telling.catch((error: unknown) => {
        if (!(error instanceof ChannelClosed)) throw error;
        this.#sayKept();
        return otherwise;
      });
    return {
      devices: lease.devices,
      foreign: lease.foreign,
      beside: () => told(lease.beside(), []),
      attach: (run) => told(lease.attach(run), undefined),
      resize: (bytes) => told(lease.resize(bytes), undefined),
      release: () => told(lease.release(), undefined),
      leave: (dir, pids) => told(lease.leave(dir, pids), undefined),
    };
  }

  #sayKept(): void {
    if (this.#said) return;
    this.#said = true;
    process.stderr.write(
      'note: the oomtune daemon of this machine ended or was restarted meanwhile: its devices stay reserved until this command ends\n',
    );
  }

  async #connected(signal?: AbortSignal): Promise<Channel> {
    for (const since = Date.now(); this.#channel.closed; ) {
      signal?.throwIfAborted();
      try {
        this.#channel = (await connectSystem(this.path)).channel;
      } catch (error) {
        const isDown = error instanceof OomtuneError && error.code === 'OOMTUNE_DAEMON_DOWN';
        if (!isDown || Date.now() - since > PATIENCE_MS) throw error;
        await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
      }
    }
    return this.#channel;
  }
}
