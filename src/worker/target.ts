import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { longestStartMs } from '../common/bounds.js';
import { readConfig } from '../common/config.js';
import { OomtuneError } from '../common/errors.js';
import { findCommand } from '../common/executable.js';
import { filesAnswer } from '../common/far-files.js';
import { PACKAGE_ROOT } from '../common/home.js';
import { formatBytes } from '../common/size.js';
import { DEFAULT_ACCELERATOR, isHost, type KindName, kindNameOf } from '../contract/device-id.js';
import { knobVariable } from '../contract/knob.js';
import type { Device } from '../contract/launch.js';
import type { Probe } from '../contract/measurement.js';
import type { Recommendation } from '../contract/recommendation.js';
import { type Config, configOf, HOOK_KNOBS, type Rung, rungOf } from '../contract/rung.js';
import { jobEnvironment } from './command/environment.js';
import { type CommandPlan, defaultName, digest, exactDigest, fill, type Knob, recognise } from './command/index.js';
import { pathsOf } from './command/named-paths.js';
import { placeholders } from './command/placeholders.js';
import { askInterpreter } from './command/torch.js';
import type { DiagnoseInput } from './diagnosis/index.js';
import { configKey } from './key.js';
import { requireKnob } from './knob/require-knob.js';
import { type ExpandableSegments, expandableSegments } from './memory/allocator.js';
import { resolveBudget, suitableDevices } from './memory/device.js';
import { type NeighbourMemory, neighbourMemory, neighbourNotes, roomBeside, sharingNote } from './memory/neighbours.js';
import { type JobNeeds, type OwnBatch, ownBatchOf } from './run/reuse.js';
import type { Lease, WorkDeps, WorkRequest } from './types.js';

/** Between two looks at memory that is waited for. */
const LOOK_AGAIN_MS = 1000;

/** A launch's argv and environment with the knobs; `knobEnv` holds only those. */
export interface Filled {
  argv: string[];
  env: Record<string, string>;
  knobEnv: Record<string, string>;
}

let ladder: unknown = null;

/** A command and its devices, as search and run need them. */
export class Target {
  /** The hook can set knobs. */
  readonly hook: boolean;
  /** The hook can at least tell what it sees: a program without torch (JAX) has no knobs for it. */
  readonly listens: boolean;
  readonly name: string;
  readonly digest: string;
  /** With the tuned values. */
  readonly exactDigest: string;
  readonly worldSize: number;
  readonly notes: string[];
  /** The command as it stands. */
  readonly baseRung: Rung;
  readonly own: OwnBatch;
  readonly ladder: unknown;
  knownBad: number | null = null;

  #lease: Lease | null = null;
  /** What is reserved on a device shared without a budget; null: not so, or not yet known. */
  #packedBytes: number | null = null;
  #neighbours: NeighbourMemory[] = [];
  #trustsHook: boolean;

  constructor(
    private readonly request: WorkRequest,
    private readonly deps: WorkDeps,
    readonly plan: CommandPlan,
    readonly torch: string | null,
    public devices: Device[],
    private readonly environment: Record<string, string>,
  ) {
    const { kind, isolated } = plan.program;
    const python = kind === 'python' && isolated === null;
    this.listens = request.options.preset !== 'none' && (kind === 'shell' || python);
    this.hook = this.listens && (kind === 'shell' || torch !== null);
    if (request.purpose !== 'find-batch') this.plan = this.#withWholeBatches(plan);
    this.#trustsHook = request.purpose === 'find-batch';
    this.name = request.options.name ?? defaultName(plan);
    this.digest = digest(plan);
    this.exactDigest = exactDigest(plan, this.digest);
    this.worldSize = worldSizeOf(plan, devices, request.options.gpus);
    this.notes = [...plan.notes];
    this.baseRung = rungOf({ amp: plan.own.amp ?? 'off', checkpointing: plan.own.checkpointing ?? false });
    const { amp: asked } = request.options;
    if (asked !== 'auto' && this.baseRung.amp !== 'off' && asked !== this.baseRung.amp)
      this.notes.push(
        `The command trains in ${this.baseRung.amp} by itself; --amp ${asked} has it train in ${asked === 'off' ? 'float32' : asked} instead. Leave --amp at auto to keep its own.`,
      );
    this.own = { microBatch: plan.own.microBatch, accumulation: plan.own.accumulation };
    ladder ??= readConfig(join(PACKAGE_ROOT, 'config', 'ladder.yaml'));
    this.ladder = ladder;
  }

  get kind(): KindName {
    return kindNameOf(this.#device.id) ?? DEFAULT_ACCELERATOR;
  }

  get #device(): Device {
    return this.devices[0] as Device;
  }

  /** On one device. */
  get budgetBytes(): number {
    return resolveBudget(this.request.options.budget, this.#device);
  }

  /** What the runtime enforces: nothing on a whole GPU, but always a limit on the host while tuning. */
  get limitBytes(): number | null {
    const { budget, tune } = this.request.options;
    return budget !== null || (isHost(this.kind) && tune) ? this.budgetBytes : this.#packedBytes;
  }

  get key(): string {
    return configKey(this.name, this.#device, this.budgetBytes, this.worldSize);
  }

  /**
   * A smaller number in a batch flag without an accumulation flag would be another training: the flag stays and the hook cuts
   * the script's batches. Not with several devices to one flag, as the share of each is not known.
   */
  #withWholeBatches(plan: CommandPlan): CommandPlan {
    const { micro_batch, accumulation } = plan.carriers;
    const several = (plan.worldSize ?? this.request.options.gpus) > 1;
    if (!this.hook || several || micro_batch !== 'preset' || accumulation !== 'hook') return plan;
    return { ...plan, carriers: { ...plan.carriers, micro_batch: 'hook' } };
  }

  /** Whether anything besides the script's own loop can accumulate. */
  get accumulates(): boolean {
    const carrier = this.carrier('accumulation');
    return carrier === 'hook' ? this.carrier('micro_batch') !== 'preset' : carrier !== 'none';
  }

  carrier(knob: Knob): CommandPlan['carriers'][Knob] {
    const carrier = this.plan.carriers[knob];
    if (carrier !== 'hook') return carrier;
    return this.hook && (this.plan.program.kind !== 'shell' || this.#trustsHook) ? 'hook' : 'none';
  }

  /** Whether the command has placeholders, so that it cannot be run as it is written. */
  get fillsIn(): boolean {
    return placeholders(this.plan.command).size > 0;
  }

  /** An earlier search saw a training loop in what a shell script runs. */
  trustHook(): void {
    this.#trustsHook = true;
  }

  /** Reserves the budget; without one, or with `--exclusive`, whole devices. The target then stands for the devices that it got. */
  async acquire(): Promise<Lease> {
    const { options, jobId, purpose } = this.request;
    const host = isHost(this.kind);
    const count = host ? 1 : Math.max(options.gpus, this.plan.worldSize ?? 1);
    const whole = options.exclusive || (options.budget === null && !host);
    const { leasing, recommendations } = await this.deps.records();
    const recorded = this.#packs ? await recommendations.get(this.key) : null;
    const packed = recorded !== null && ownBatchOf(recorded, this) !== null ? this.#toPack(recorded) : null;
    const lease = await leasing.acquire({
      owner: jobId,
      devices: this.devices,
      count,
      bytes: packed ?? (whole ? null : this.budgetBytes),
      share: !whole || this.#packs,
      pair: options.shareAuto === true && (!whole || this.#packs),
      foreground: purpose === 'submit' ? null : { verb: purpose, name: this.name },
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
    this.#packedBytes = packed;
    this.#neighbours = neighbourMemory(lease);
    this.deps.progress({ type: 'device', device: this.#device, budgetBytes: this.budgetBytes });
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
    if (!this.#packs || this.#packedBytes !== null) return;
    const { recommendations } = await this.deps.records();
    const recorded = await recommendations.get(this.key);
    const bytes = recorded === null ? null : this.#toPack(recorded);
    if (bytes === null) return;
    await lease.resize(bytes);
    this.#packedBytes = bytes;
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

  /** The loop's own accumulation besides the tuner's; 1 if argv carries it. */
  get loopAccumulation(): number {
    const carrier = this.carrier('accumulation');
    return carrier === 'hook' || carrier === 'none' ? (this.own.accumulation ?? 1) : 1;
  }

  configOf(probe: Pick<Probe, 'rung' | 'micro_batch' | 'accumulation' | 'expandable_segments' | 'knob'>): Config {
    const { rung, expandable_segments, knob, micro_batch, accumulation } = probe;
    return configOf(
      { ...rung, expandable_segments, ...(knob ? { knob } : {}) },
      { micro_batch, accumulation, world_size: this.worldSize },
    );
  }

  /** Drops expandable segments that would override the user's own allocator settings. */
  #allowed(config: Config): Config {
    const { expandable_segments, ...rest } = config;
    return expandable_segments && this.expandableSegments === 'possible' ? config : rest;
  }

  /** A launch's argv and environment. `config` null: the command as it stands. */
  async fill(config: Config | null, dir: string, launch: number, resume = false): Promise<Filled> {
    const filled =
      config === null
        ? { argv: [...this.plan.command], env: {} }
        : await fill(this.plan, this.#allowed(config), { launchDir: dir });
    const knobEnv = filled.env;
    // Unbuffered, as output is followed live; the runtime sets the visible devices.
    const env: Record<string, string> = { PYTHONUNBUFFERED: '1', ...this.environment, ...knobEnv };
    env.OOMTUNE_JOB_ID = this.request.jobId;
    env.OOMTUNE_LAUNCH = String(launch);
    const { sweep } = this.request.options;
    if (sweep?.index != null) env.OOMTUNE_ARRAY_INDEX = String(sweep.index);
    env.OOMTUNE_DEVICE = this.devices.map((device) => device.id).join(',');
    env.OOMTUNE_BUDGET_BYTES = String(this.#packedBytes ?? this.budgetBytes);
    // The hook cuts the loader's batches, so it has to know how many of them make one step.
    if (this.own.accumulation !== null) env.OOMTUNE_OWN_ACCUMULATION = String(this.own.accumulation);
    if (this.request.options.cut) env.OOMTUNE_CUT = this.request.options.cut;
    // So that a search counts in them from its first process on.
    if (this.request.options.microBatchTokens !== undefined) env.OOMTUNE_MICRO_BATCH_TOKENS ??= 'auto';
    // By these the training's loader is recognised before its loop begins.
    const ownBatch = this.own.microBatch ?? (this.carrier('micro_batch') === 'hook' ? null : config?.micro_batch);
    if (ownBatch != null) env.OOMTUNE_OWN_BATCH = String(ownBatch);
    if (this.own.samples) env.OOMTUNE_OWN_SAMPLES = String(this.own.samples);
    for (const { name, value } of this.request.knobs ?? []) env[knobVariable(name)] = String(value);
    if (resume) env.OOMTUNE_RESUME = '1';
    return { argv: filled.argv, env, knobEnv };
  }

  /** What a recorded configuration has to suit, for the command's own batch. */
  needs(own: OwnBatch): JobNeeds {
    const { budgetBytes, worldSize, baseRung, expandableSegments } = this;
    return { budgetBytes, worldSize, baseRung, own, expandable: expandableSegments !== 'out of the question' };
  }

  get expandableSegments(): ExpandableSegments {
    return expandableSegments(this.kind, this.torch, this.environment);
  }

  /** What of a rung the hook turns on: a knob that the command's own words carry is on already, or off. */
  hookRung({ amp, checkpointing, ...rest }: Rung): Rung {
    return {
      ...rest,
      amp: this.carrier('amp') === 'hook' ? amp : 'off',
      checkpointing: this.carrier('checkpointing') === 'hook' && checkpointing,
    };
  }

  /** Whether one process can go from one rung to the other: what differs is the hook's to turn on and off. */
  canSwitch(from: Rung, to: Rung): boolean {
    return (['amp', 'checkpointing'] as const).every(
      (knob) => this.carrier(knob) === 'hook' || from[knob] === to[knob],
    );
  }

  /** Knobs that only the hook can set, and that differ from the script's own. */
  hookKnobs(config?: Config): string[] {
    const knobs: string[] = [];
    const differs = (knob: Knob): boolean => {
      if (config === undefined) return true;
      if (knob === 'micro_batch')
        return config.micro_batch !== this.own.microBatch || config.accumulation !== (this.own.accumulation ?? 1);
      if (knob === 'accumulation') return config.accumulation !== (this.own.accumulation ?? 1);
      return knob === 'amp' ? config.amp !== this.baseRung.amp : config.checkpointing !== this.baseRung.checkpointing;
    };
    for (const knob of ['micro_batch', 'accumulation', 'amp', 'checkpointing'] as const) {
      // Where a value of the command's own is searched, its batches stay as they are.
      if (config?.knob && (knob === 'micro_batch' || knob === 'accumulation')) continue;
      if (this.carrier(knob) === 'hook' && differs(knob)) knobs.push(knob);
    }
    // With a placeholder the script's batches are micro-batches, so the hook joins them, and cuts the joined ones.
    if (config && knobs.includes('accumulation') && !knobs.includes('micro_batch')) knobs.push('micro_batch');
    knobs.push(...HOOK_KNOBS.filter((knob) => config?.[knob]));
    return knobs;
  }
}

/** Processes that train, each on a device of its own. */
export function worldSizeOf({ worldSize }: CommandPlan, devices: readonly Device[], gpus: number): number {
  return worldSize ?? (isHost(devices[0]?.id) ? 1 : Math.max(1, gpus));
}

/** Understands a request: its command, interpreter and devices. Starts nothing that lasts. */
export async function prepare(request: WorkRequest, deps: WorkDeps): Promise<Target> {
  const { options } = request;
  await filesAnswer(pathsOf(request.command, options, request.environment), longestStartMs(), deps.signal);
  const environment = jobEnvironment(options, request.environment);
  const plan = await recognise(request.command, {
    cwd: options.cwd,
    env: environment,
    preset: options.preset,
    worldSize: options.gpus > 1 ? options.gpus : null,
    ...(request.knob === undefined ? {} : { knobs: new Set([request.knob.name]) }),
  });
  // A script under `run --no-tune` needs no torch.
  const asking = options.tune ? askInterpreter(plan, options.cwd, environment) : null;
  const [found, interpreter] = await Promise.all([deps.runtime.devices(), asking, deps.records()]);
  const devices = suitableDevices(found, options);
  const torch = interpreter?.torch ?? null;
  const target = new Target(request, deps, plan, torch, devices, environment);
  resolveBudget(options.budget, devices[0] as Device); // says now what would be wrong later
  if (interpreter !== null) deps.progress({ type: 'interpreter', ...interpreter });
  if (request.knob !== undefined) requireKnob(request.knob.name, plan);
  else if (request.purpose === 'find-batch' && target.carrier('micro_batch') === 'none') {
    findCommand(request.command[0] as string, environment, options.cwd); // a command that is not there takes nothing either
    throw noKnob(plan.program, torch);
  }
  if (options.microBatchTokens !== undefined && options.tune && target.carrier('micro_batch') !== 'hook') {
    throw new OomtuneError(
      'OOMTUNE_NO_KNOB',
      'Micro-batches are counted in tokens where the hook makes them, and here the command sets their size itself.',
      'Leave the placeholder or the preset out (--preset auto finds the hook), or leave --micro-batch-tokens out.',
    );
  }
  return target;
}

/** The error for a command that takes no micro-batch; says what keeps the hook out. */
function noKnob({ kind, isolated, interpreter }: CommandPlan['program'], torch: string | null): OomtuneError {
  const isolates = kind === 'python' && isolated !== null;
  const lacksTorch = kind === 'python' && torch === null;
  const why = isolates
    ? `: Python's ${isolated} keeps the hook out`
    : lacksTorch
      ? `: ${interpreter?.path ?? 'the interpreter'} has no torch for the hook to work with`
      : '';
  const first = isolates
    ? `Leave ${isolated} out, or put`
    : lacksTorch
      ? 'Use the interpreter that has torch, or put'
      : 'Put';
  return new OomtuneError(
    'OOMTUNE_NO_KNOB',
    `Nothing in the command takes the micro-batch${why}.`,
    `${first} {micro_batch} where the batch size goes, read OOMTUNE_MICRO_BATCH in the program, or name a --preset.`,
  );
}
