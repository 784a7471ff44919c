import type { DeviceView, MachineView } from '../../contract/http.js';
import type { Device } from '../../contract/launch.js';
import type { LeaseRecord } from '../../contract/state.js';
import type { Runtime } from '../../runtime/types.js';
import { hostName, reservedBy, type Store } from '../../store/index.js';

const FRESH_MS = 1500;
const GONE_SHOWN_MS = 24 * 3600_000;
const PROCESSES_SHOWN = 8;

/** This host's devices in full, those of others as far as Redis knows them. */
export class Machine {
  #devices: { at: number; asked: Promise<Device[]> } | null = null;

  constructor(
    private readonly store: Store,
    private readonly runtime: Runtime,
  ) {}

  /** Asks the driver only now and then, however many ask. */
  devices(): Promise<Device[]> {
    if (this.#devices === null || Date.now() - this.#devices.at > FRESH_MS) {
      const asked = this.runtime.devices();
      asked.catch(() => {
        this.#devices = null;
      });
      this.#devices = { at: Date.now(), asked };
    }
    return this.#devices.asked;
  }

  async view(): Promise<MachineView> {
    const [devices, leases, hosts] = await Promise.all([
      this.devices(),
      this.store.leasing.list(),
      this.store.hosts.list(),
    ]);
    const here = hostName();
    const own = devices.map((device) => ownDevice(device, here, leases));
    const others = hosts
      .filter(({ host }) => host !== here)
      .flatMap(({ host, info }) => (info?.devices ?? []).map((device) => otherDevice(host, device, leases)));
    return {
      hosts: hosts
        .filter(({ info, seen }) => info !== null || Date.now() - seen < GONE_SHOWN_MS)
        .map(({ host, seen, info }) => ({
          host,
          alive: info !== null,
          seen: new Date(seen).toISOString(),
          version: info?.version ?? null,
        })),
      devices: [...own, ...others],
    };
  }
}

function ownDevice(device: Device, host: string, leases: LeaseRecord[]): DeviceView {
  const { id, uuid, model, total_bytes, used_bytes, fault, note } = device;
  const leased = leases.filter((lease) => lease.devices.some((one) => one.uuid === uuid));
  const processes = device.processes
    .toSorted((a, b) => b.used_bytes - a.used_bytes)
    .slice(0, PROCESSES_SHOWN)
    .map(({ pid, name, used_bytes, ours }) => ({ pid, name, used_bytes, ours }));
  return { host, id, uuid, model, total_bytes, used_bytes, fault, note, processes, ...reservedBy(leased, total_bytes) };
}

function otherDevice(
  host: string,
  { id, model, total_bytes }: { id: string; model: string; total_bytes: number },
  leases: LeaseRecord[],
): DeviceView {
  const leased = leases.filter((lease) => lease.host === host && lease.devices.some((one) => one.id === id));
  const unknown = { uuid: null, used_bytes: null, fault: null, note: null, processes: [] };
  return { host, id, model, total_bytes, ...unknown, ...reservedBy(leased, total_bytes) };
}
