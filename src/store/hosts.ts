import type { Redis } from 'ioredis';
import { readJson } from '../contract/fields.js';
import { type HostInfo, hostInfo } from '../contract/state.js';
import type { Keys } from './keys.js';
import { runScript } from './scripts.js';

/** A host without a heartbeat for this long counts as gone. */
export const HEARTBEAT_MS = 20_000;

/** A host silent for this long is lost: `cancel` and `retry` act on its jobs without it. */
export const LOST_MS = 60_000;

/** A known host. `info` null: it is silent, or its data is unreadable. */
export interface KnownHost {
  host: string;
  seen: number;
  alive: boolean;
  info: HostInfo | null;
}

/** Hosts with a living daemon: `{oomtune}:host:<name>`, which expires. */
export class Hosts {
  constructor(
    private readonly redis: Redis,
    private readonly keys: Keys,
  ) {}

  /** Says that the daemon lives. Returns another living daemon of the same host name, if there is one. */
  async beat(info: HostInfo): Promise<HostInfo | null> {
    const args = [JSON.stringify(info), info.instance, HEARTBEAT_MS, info.host];
    const other = await runScript(this.redis, 'host/beat', [this.keys.host(info.host), this.keys.hosts], args);
    return typeof other === 'string' ? readJson(hostInfo, other) : null;
  }

  /** Takes the daemon's own heartbeat away, never that of another daemon of the name. */
  async leave({ host, instance }: Pick<HostInfo, 'host' | 'instance'>): Promise<void> {
    await runScript(this.redis, 'host/leave', [this.keys.host(host)], [instance]);
  }

  async isAlive(host: string): Promise<boolean> {
    return (await this.redis.exists(this.keys.host(host))) === 1;
  }

  /** Takes a silent host out of the list. False: it was heard a moment ago. */
  async forget(host: string): Promise<boolean> {
    return (await runScript(this.redis, 'host/forget', [this.keys.host(host), this.keys.hosts], [host])) === 1;
  }

  /** All that were ever seen and not forgotten. */
  async list(): Promise<KnownHost[]> {
    const entries = await this.redis.zrange(this.keys.hosts, '0', '-1', 'WITHSCORES');
    const hosts: KnownHost[] = [];
    for (let at = 0; at + 1 < entries.length; at += 2) {
      const host = entries[at] as string;
      const text = await this.redis.get(this.keys.host(host));
      hosts.push({ host, seen: Number(entries[at + 1]), alive: text !== null, info: readJson(hostInfo, text) });
    }
    return hosts;
  }
}
