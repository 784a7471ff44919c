import type { KindName } from '../contract/device-id.js';
import type { Device } from '../contract/launch.js';

/** All that differs between kinds of devices. It stands in their folders only. */
export interface DeviceKind {
  /** `--device` and the ids of devices begin with it. */
  readonly name: KindName;
  /** For sentences: `host memory`, `GPU`. */
  readonly noun: string;
  /** Part of a device's bytes that a job without a budget may hold. */
  readonly defaultShare: number;
  /** torch keeps memory of it that tensors have given back, so that peaks settle only after some steps. */
  readonly cachingAllocator: boolean;
  /** Null: it needs no driver. */
  readonly driver: Driver | null;
  /** The devices of this kind on this machine, in the order of their ids. */
  list(addon: DeviceAddon): Promise<Listing>;
  /** What the job's environment needs so that its allocations on such a device are counted; null: they cannot be, here. */
  preload(environment: Readonly<Record<string, string>>, nativeFolder: string): Preload | null;
  /** What shows a job its devices of this kind, and no others. Asked of every kind, so also where the job has none of them. */
  show(devices: readonly Device[], job: JobLimits): Record<string, string>;
}

export interface Driver {
  /** For sentences: `NVIDIA driver`. */
  readonly name: string;
  /** A program of its own that shows the devices. */
  readonly tool: string;
  /** Null: it is not installed. */
  version(): string | null;
}

export interface Listing {
  devices: Device[];
  /** There is no driver of this kind here, so that it need be asked for its devices only now and then. */
  absent: boolean;
  /** For people: why the devices could not be listed; null: they were. */
  trouble: string | null;
}

export interface Preload {
  /** To be added to the job's environment. */
  env: Record<string, string>;
  /** The library that the driver's calls go through; null: none stands in between. */
  standIn: string | null;
}

export interface JobLimits {
  /** Bytes on each device; null: no budget. */
  budgetBytes: number | null;
  /** The user's environment. */
  env: Readonly<Record<string, string>>;
}

/** What native/addon tells of devices. */
export interface DeviceAddon {
  inventory(): Promise<NativeInventory>;
}

/** What NVML says of the GPUs. */
export interface NativeInventory {
  found: boolean;
  driver: string;
  error: string;
  gpus: NativeGpu[];
}

/** What NVML says of one GPU, or of one MIG device on it. */
export interface NativeGpu {
  /** Of the whole GPU, as nvidia-smi counts. */
  index: number;
  /** -1: the whole GPU. */
  mig: number;
  uuid: string;
  parent: string;
  /** PCI bus id, "0000:17:00.0"; empty: not told. */
  bus: string;
  model: string;
  fault: string;
  total_bytes: number;
  used_bytes: number;
  /** What it is doing; null, absent: not told. */
  utilisation_pct?: number | null;
  temperature_c?: number | null;
  power_w?: number | null;
  processes_told: boolean;
  processes: { pid: number; name: string; used_bytes: number | null }[];
}

/** Puts `ours` before the user's, once. */
export function prepend(value: string | undefined, ours: string, separators = /[:;]/): string {
  const rest = (value ?? '').split(separators).filter((part) => part && part !== ours);
  return [ours, ...rest].join(':');
}

/** Puts `ours` behind the user's, once. */
export function append(value: string | undefined, ours: string): string {
  const rest = (value ?? '').split(/[:\s]/).filter((part) => part && part !== ours);
  return [...rest, ours].join(':');
}
