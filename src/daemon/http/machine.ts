import { z } from 'zod';
import { isHost } from '../../contract/device-id.js';
import { readJson } from '../../contract/fields.js';
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
    const names = await this.#names(leases);
    const own = devices.map((device) => ownDevice(device, here, leases, names));
    const others = hosts
      .filter(({ host }) => host !== here)
      .flatMap(({ host, info }) => (info?.devices ?? []).map((device) => otherDevice(host, device, leases, names)));
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

  /** What the holders of leases are called, by owner. */
  async #names(leases: LeaseRecord[]): Promise<Map<string, string>> {
    const owners = leases.map(({ owner }) => owner);
    const records = await this.store.jobs.fields(owners, ['name']);
    return new Map(
      leases.flatMap(({ owner, foreground }, at): [string, string][] => {
        const name = foreground?.name ?? readJson(z.string(), records[at]?.[0]);
        return name === null ? [] : [[owner, name]];
      }),
    );
  }
}

function ownDevice(device: Device, host: string, leases: LeaseRecord[], names: Map<string, string>): DeviceView {
  const { id, uuid, model, total_bytes, used_bytes, fault, note } = device;
  const leased = leases.filter((lease) => lease.devices.some((one) => one.uuid === uuid));
  const processes = device.processes
    .toSorted((a, b) => b.used_bytes - a.used_bytes)
    .slice(0, PROCESSES_SHOWN)
    .map(({ pid, name, used_bytes, ours }) => ({ pid, name, used_bytes, ours }));
  return {
    ...{ host, id, uuid, model, total_bytes, used_bytes, fault, note, processes },
    utilisation_pct: device.utilisation_pct ?? null,
    free_bytes: fault === null ? freeFor(leased, total_bytes, isHost(id) ? 0 : strangersUse(device, leased)) : 0,
    ...reserved(leased, total_bytes, names),
  };
}

function otherDevice(
  host: string,
  { id, model, total_bytes }: { id: string; model: string; total_bytes: number },
  leases: LeaseRecord[],
  names: Map<string, string>,
): DeviceView {
  const leased = leases.filter((lease) => lease.host === host && lease.devices.some((one) => one.id === id));
  const unknown = { uuid: null, used_bytes: null, utilisation_pct: null, fault: null, note: null, processes: [] };
  const free_bytes = freeFor(leased, total_bytes, 0);
  return { host, id, model, total_bytes, ...unknown, free_bytes, ...reserved(leased, total_bytes, names) };
}

function reserved(leases: LeaseRecord[], total: number, names: Map<string, string>) {
  const { reserved_bytes, holders } = reservedBy(leases, total);
  return { reserved_bytes, holders: holders.map((one) => ({ ...one, name: names.get(one.job) ?? null })) };
}

/** Bytes in use that no reservation here accounts for, as far as the driver tells whose they are. */
function strangersUse({ processes, used_bytes }: Device, leases: LeaseRecord[]): number {
  const reserving = new Set(leases.map(({ owner }) => owner));
  const accounted =
    processes.length === 0
      ? leases.reduce((sum, { bytes }) => sum + (bytes ?? 0), 0)
      : processes
          .filter(({ job, ours }) => (job === null ? ours : reserving.has(job)))
          .reduce((sum, one) => sum + one.used_bytes, 0);
  return Math.max(0, used_bytes - accounted);
}

/** What one more job could reserve, as the rules of leases have it: beside others only where all of them share. */
function freeFor(leases: LeaseRecord[], total: number, strangers: number): number {
  if (leases.some(({ bytes, share }) => bytes === null || !share)) return 0;
  return Math.max(0, total - strangers - leases.reduce((sum, { bytes }) => sum + (bytes ?? 0), 0));
}
