/** What a kind of device brings with it. Everything that differs between kinds stands in their folders, and nowhere else. */
export interface DeviceKind {
  /** `--device` and the ids of devices begin with it. */
  readonly name: string;
  /** The host's memory: one device, whose id is the kind's name, never a job's alone. False: devices are `name:0`, `name:1`, … */
  readonly host: boolean;
  /** For sentences: `host memory`, `GPU`. */
  readonly noun: string;
  /** Part of a device's bytes that a job without a budget may hold. */
  readonly defaultShare: number;
  /** torch keeps memory of it that tensors have given back, so that peaks settle only after some steps. */
  readonly cachingAllocator: boolean;
  /** What the job's environment needs so that its allocations on such a device are counted; null: they cannot be, here. */
  preload(environment: Readonly<Record<string, string>>, nativeFolder: string): Preload | null;
}

export interface Preload {
  /** To be added to the job's environment. */
  env: Record<string, string>;
  /** The library that the driver's calls go through; null: none stands in between. */
  standIn: string | null;
}

/** Puts ours in front of what the user has set, and never twice. */
export function prepend(value: string | undefined, ours: string, separators = /[:;]/): string {
  const rest = (value ?? '').split(separators).filter((part) => part && part !== ours);
  return [ours, ...rest].join(':');
}

/** Puts ours behind what the user has set, and never twice. */
export function append(value: string | undefined, ours: string): string {
  const rest = (value ?? '').split(/[:\s]/).filter((part) => part && part !== ours);
  return [...rest, ours].join(':');
}
