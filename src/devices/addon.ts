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
  processes_told: boolean;
  processes: { pid: number; name: string; used_bytes: number | null }[];
}
