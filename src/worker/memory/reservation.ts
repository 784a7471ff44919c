import { setTimeout } from 'node:timers/promises';
import { formatBytes } from '../../common/size.js';
import { DEFAULT_ACCELERATOR, isHost, type KindName, kindNameOf } from '../../contract/device-id.js';
import type { Device } from '../../contract/launch.js';
import type { Recommendation } from '../../contract/recommendation.js';
import type { DiagnoseInput } from '../diagnosis/index.js';
import type { Lease, WorkDeps, WorkRequest } from '../types.js';
import { resolveBudget } from './device.js';
import { type NeighbourMemory, neighbourMemory, neighbourNotes, roomBeside, sharingNote } from './neighbours.js';

/** Between two looks at memory that is waited for. */
const LOOK_AGAIN_MS = 1000;

/** What a reservation has to know of the job that it is for. */
interface Job {
  readonly name: string;
  /** Processes that train on one machine, by the command's own words; null: it does not say. */
  readonly processesHere: number | null;
  key(): string;
  /** Whether what was recorded is of the same command. */
  suits(recorded: Recommendation): boolean;
}

/** The devices of a job, the memory that is reserved on them, and what others take there. */
export class Reservation {
  /** What is reserved on a device shared without a budget; null: not so, or not yet known. */
  packedBytes: number | null = null;
  #lease: Lease | null = null;
  #neighbours: NeighbourMemory[] = [];

  constructor(
    private readonly request: WorkRequest,
    private readonly deps: WorkDeps,
    public devices: Device[],
    private readonly job: Job,
  ) {}

  get kind(): KindName {
    return kindNameOf(this.device.id) ?? DEFAULT_ACCELERATOR;
  }

  /** The first of them; all are alike. */
  get device(): Device {
    return this.devices[0] as Device;
  }

  /** On one device. */
  get budgetBytes(): number {
    return resolveBudget(this.request.options.budget, this.device);
  }

  /** What the runtime enforces: nothing on a whole GPU, but always a limit on the host while tuning. */
  get limitBytes(): number | null {
    const { budget, tune } = this.request.options;
    return budget !== null || (isHost(this.kind) && tune) ? this.budgetBytes : this.packedBytes;
  }

  /** Reserves the budget; without one, or with `--exclusive`, whole devices. From then on it stands for the devices that it got. */
  async acquire(): Promise<Lease> {
    const { options, jobId, purpose } = this.request;
    const host = isHost(this.kind);
    const count = host ? 1 : Math.max(options.gpus, this.job.processesHere ?? 1);
    const whole = options.exclusive || (options.budget === null && !host);
    const { leasing, recommendations } = await this.deps.records();
    const recorded = this.#packs ? await recommendations.get(this.job.key()) : null;
    const packed = recorded !== null && this.job.suits(recorded) ? this.#toPack(recorded) : null;
    const lease = await leasing.acquire({
      owner: jobId,
      devices: this.devices,
      count,
      bytes: packed ?? (whole ? null : this.budgetBytes),
      share: !whole || this.#packs,
      pair: options.shareAuto === true && (!whole || this.#packs),
      foreground: purpose === 'submit' ? null : { verb: purpose, name: this.job.name },
      priority: options.priority,
      // A foreground command uses what is free now; a queued job can wait for the memory that it was promised.
      lenient: purpose !== 'submit',
      needBytes: packed ?? (options.budget === null ? null : this.budgetBytes),
      refresh: () => this.deps.runtime.devices(),
      lastsSeconds: options.timeSeconds ?? null,
      signal: this.deps.signal,
      onWait: (reason) => this.deps.progress({ type: 'waiting', reason }),
    });
    this.devices = lease.devices;
    this.#lease = lease;
    this.packedBytes = packed;
    this.#neighbours = neighbourMemory(lease);
    this.deps.progress({ type: 'device', device: this.device, budgetBytes: this.budgetBytes });
    for (const text of this.neighbourNotes) this.deps.progress({ type: 'note', text });
    return lease;
  }

  /** `--share` without a budget: the recorded configuration tells how much it needs. */
  get #packs(): boolean {
    const { share, budget, exclusive } = this.request.options;
    return share && budget === null && !exclusive && !isHost(this.kind);
  }

  /** The peak of a recorded configuration with the headroom; null: unknown, as where nothing of it was seen on the device. */
  #toPack({ status, peak_bytes }: Recommendation): number | null {
    if (status !== 'verified' || peak_bytes === null || peak_bytes === 0) return null;
    const bytes = Math.ceil(peak_bytes * (1 + this.request.options.headroomPct / 100));
    return bytes < this.budgetBytes ? bytes : null;
  }

  /** Leaves the rest of the device to others, and limits the job to its part. */
  async pack(lease: Lease): Promise<void> {
    if (!this.#packs || this.packedBytes !== null) return;
    const { recommendations } = await this.deps.records();
    const recorded = await recommendations.get(this.job.key());
    const bytes = recorded === null ? null : this.#toPack(recorded);
    if (bytes === null) return;
    await lease.resize(bytes);
    this.packedBytes = bytes;
  }

  /** The part of the budget that other programs leave. */
  get roomBytes(): number {
    return roomBeside(this.#neighbours, this.budgetBytes);
  }

  get neighbourNotes(): string[] {
    return neighbourNotes(this.#neighbours, this.budgetBytes);
  }

  async sharingNote(): Promise<string | null> {
    return this.#lease === null ? null : sharingNote(this.#lease, this.#neighbours);
  }

  async #now(): Promise<Device[]> {
    const all = await this.deps.runtime.devices();
    return all.filter(({ id }) => this.devices.some((device) => device.id === id));
  }

  /** Other programs on the devices, to explain a lack of memory. */
  async surroundings(): Promise<Pick<DiagnoseInput, 'neighbours' | 'totalBytes'>> {
    if (isHost(this.kind)) return { totalBytes: this.budgetBytes };
    const neighbours = (await this.#now()).flatMap((device) => device.processes.filter((process) => !process.ours));
    return { neighbours, totalBytes: this.budgetBytes };
  }

  /** Waits until the devices have so many bytes free; false: it was aborted. */
  async waitForMemory(bytes: number): Promise<boolean> {
    const { signal, progress } = this.deps;
    for (let announced = false; !signal.aborted; announced = true) {
      const short = (await this.#now()).find((device) => device.total_bytes - device.used_bytes < bytes);
      if (short === undefined) return true;
      if (!announced)
        progress({ type: 'waiting', reason: `for ${formatBytes(bytes)} on ${short.id} that other processes hold` });
      await setTimeout(LOOK_AGAIN_MS, undefined, { signal }).catch(() => {}); // told to stop: the loop sees it
    }
    return false;
  }
}
