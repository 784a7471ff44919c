import { OomtuneError } from '../common/errors.js';
import { isHost, type KindName, kindNameOf } from '../contract/device-id.js';
import type { Device } from '../contract/launch.js';
import { KINDS } from '../devices/index.js';
import type { DeviceAddon, DeviceKind, Listing } from '../devices/kind.js';

/** A kind without a driver here is asked again only after this time: a daemon asks for every job. */
const ABSENT_MS = 10_000;

/** The devices of this machine, as their kinds list them. */
export class Devices {
  readonly #absent = new Map<KindName, { listing: Listing; at: number }>();
  #known = new Map<string, Device>();

  constructor(private readonly addon: DeviceAddon) {}

  /** The host comes last, with a note on drivers that do not answer. */
  async list(kinds: readonly DeviceKind[] = Object.values(KINDS)): Promise<Device[]> {
    const listings = await Promise.all(kinds.map((kind) => this.#ask(kind)));
    const all = listings.flatMap(({ devices }) => devices);
    const trouble = listings.map((listing) => listing.trouble);
    const hosts = all.filter(({ id }) => isHost(id));
    const devices = [
      ...all.filter(({ id }) => !isHost(id)),
      ...hosts.map((host) => ({ ...host, note: [host.note, ...trouble].filter(Boolean).join(' ') || null })),
    ];
    this.#known = new Map(devices.map((device) => [device.id, device]));
    return devices;
  }

  async #ask(kind: DeviceKind): Promise<Listing> {
    const absent = this.#absent.get(kind.name);
    if (absent !== undefined && Date.now() - absent.at < ABSENT_MS) return absent.listing;
    const listing = await kind.list(this.addon);
    if (listing.absent) this.#absent.set(kind.name, { listing, at: Date.now() });
    return listing;
  }

  /** The devices of a launch, in its order. Throws OOMTUNE_DEVICE_MISSING. */
  async named(ids: readonly string[]): Promise<Device[]> {
    if (!ids.every((id) => this.#known.has(id)))
      await this.list(Object.values(KINDS).filter(({ name }) => ids.some((id) => kindNameOf(id) === name)));
    return ids.map((id) => {
      const device = this.#known.get(id);
      if (device !== undefined) return device;
      throw new OomtuneError(
        'OOMTUNE_DEVICE_MISSING',
        `There is no device ${id} on this machine.`,
        '`oomtune devices` lists those that are there; `--device cpu` needs none.',
      );
    });
  }
}
