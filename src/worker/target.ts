import { join } from 'node:path';
import { readConfig } from '../common/config.js';
import { PACKAGE_ROOT } from '../common/home.js';
import { isHost, type KindName } from '../contract/device-id.js';
import { knobVariable } from '../contract/knob.js';
import type { Device } from '../contract/launch.js';
import type { Probe } from '../contract/measurement.js';
import { type Config, configOf, HOOK_KNOBS, type Rung, rungOf } from '../contract/rung.js';
import { type CommandPlan, defaultName, digest, exactDigest, fill, type Knob } from './command/index.js';
import { placeholders } from './command/placeholders.js';
import type { Interpreter } from './command/torch.js';
import { configKey } from './key.js';
import { type ExpandableSegments, expandableSegments } from './memory/allocator.js';
import { Reservation } from './memory/reservation.js';
import { type JobNeeds, type OwnBatch, ownBatchOf } from './run/reuse.js';
import type { WorkDeps, WorkRequest } from './types.js';

/** A launch's argv and environment with the knobs; `knobEnv` holds only those. */
export interface Filled {
  argv: string[];
  env: Record<string, string>;
  knobEnv: Record<string, string>;
}

const cutByHook = (plan: CommandPlan): CommandPlan => ({
  ...plan,
  carriers: { ...plan.carriers, micro_batch: 'hook', accumulation: 'hook' },
});

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
  /** Micro-batches that a framework adds up would be another training than the whole batch: it is cut at the model's call. */
  cutsAtModel = false;

  /** Its devices and their memory. */
  readonly memory: Reservation;

  constructor(
    private readonly request: WorkRequest,
    deps: WorkDeps,
    public plan: CommandPlan,
    readonly interpreter: Interpreter | null,
    devices: Device[],
    private readonly environment: Record<string, string>,
  ) {
    const { torch } = this;
    const { kind, isolated } = plan.program;
    const python = kind === 'python' && isolated === null;
    this.listens = request.options.preset !== 'none' && (kind === 'shell' || python);
    this.hook = this.listens && (kind === 'shell' || torch !== null);
    if (request.purpose !== 'find-batch') this.plan = this.#withWholeBatches(plan);
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
    this.memory = new Reservation(request, deps, devices, {
      name: this.name,
      processesHere: plan.processesHere,
      key: () => this.key,
      suits: (recorded) => ownBatchOf(recorded, this) !== null,
    });
    ladder ??= readConfig(join(PACKAGE_ROOT, 'config', 'ladder.yaml'));
    this.ladder = ladder;
  }

  get kind(): KindName {
    return this.memory.kind;
  }

  get devices(): Device[] {
    return this.memory.devices;
  }

  /** On one device. */
  /** Its version; null: the command's interpreter has none, or it has no interpreter. */
  get torch(): string | null {
    return this.interpreter?.torch ?? null;
  }

  get budgetBytes(): number {
    return this.memory.budgetBytes;
  }

  get key(): string {
    return configKey(this.name, this.memory.device, this.budgetBytes, this.worldSize);
  }

  /**
   * A smaller number in a batch flag would be another training where the command has no accumulation flag, or where a preset says
   * so: the flags stay and the hook cuts the script's batches. Not with several devices to one flag, as the share of each is not
   * known. Other batches than its own, by which it may set its learning rate, come by its flags.
   */
  #withWholeBatches(plan: CommandPlan): CommandPlan {
    const { micro_batch, accumulation } = plan.carriers;
    const { gpus, effectiveBatch, cut } = this.request.options;
    const several = (plan.worldSize ?? gpus) > 1;
    const wished = plan.inner.preset?.whole_batches || cut === 'model';
    const whole = wished && effectiveBatch === null && cut !== 'loader';
    const differs = accumulation === 'hook' || (accumulation === 'preset' && whole);
    if (!this.hook || several || micro_batch !== 'preset' || !differs) return plan;
    return cutByHook(plan);
  }

  /** From the next launch on the command keeps its own batch, which the hook cuts. Returns false where it has none (a placeholder). */
  cutAtModel(): boolean {
    if (!['hook', 'preset'].includes(this.carrier('micro_batch'))) return false;
    this.cutsAtModel = true;
    this.plan = cutByHook(this.plan);
    return true;
  }

  /** Whether anything besides the script's own loop can accumulate. */
  get accumulates(): boolean {
    const carrier = this.carrier('accumulation');
    return carrier === 'hook' ? this.carrier('micro_batch') !== 'preset' : carrier !== 'none';
  }

  carrier(knob: Knob): CommandPlan['carriers'][Knob] {
    const carrier = this.plan.carriers[knob];
    if (carrier !== 'hook') return carrier;
    return this.hook ? 'hook' : 'none';
  }

  /** Whether a search can take a fork of its own process for a start: one process, in which the hook sets the batches. On an H200 it saved 0.8 of a misfit's 40 s (the context and the first kernels are what takes long there, and are a life's own), so that a job on a GPU keeps none. */
  get leavesSpare(): boolean {
    if (!isHost(this.kind)) return false;
    return this.plan.program.kind === 'python' && this.worldSize === 1 && this.carrier('micro_batch') === 'hook';
  }

  /** Whether the command has placeholders, so that it cannot be run as it is written. */
  get fillsIn(): boolean {
    return placeholders(this.plan.command).size > 0;
  }

  /** Whether only a launch tells what is started, and so whether anything trains: a shell script, a Makefile's target. */
  get hidesProgram(): boolean {
    return this.plan.program.kind === 'shell';
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
    env.OOMTUNE_BUDGET_BYTES = String(this.memory.packedBytes ?? this.budgetBytes);
    // The hook cuts the loader's batches, so it has to know how many of them make one step.
    if (this.own.accumulation !== null) env.OOMTUNE_OWN_ACCUMULATION = String(this.own.accumulation);
    const { cut = 'auto' } = this.request.options;
    if (cut !== 'auto' || this.cutsAtModel) env.OOMTUNE_CUT = cut === 'auto' ? 'whole' : cut;
    // So that a search counts in them from its first process on.
    if (this.request.options.microBatchTokens !== undefined) env.OOMTUNE_MICRO_BATCH_TOKENS ??= 'auto';
    // By these the training's loader is recognised before its loop begins.
    const ownBatch = this.own.microBatch ?? (this.carrier('micro_batch') === 'hook' ? null : config?.micro_batch);
    if (ownBatch != null) env.OOMTUNE_OWN_BATCH = String(ownBatch);
    else if (config !== null && this.keepsUnknown) env.OOMTUNE_OWN_BATCH = 'unknown';
    if (this.own.samples) env.OOMTUNE_OWN_SAMPLES = String(this.own.samples);
    for (const { name, value } of this.request.knobs ?? []) env[knobVariable(name)] = String(value);
    if (resume) env.OOMTUNE_RESUME = '1';
    return { argv: filled.argv, env, knobEnv };
  }

  /** What a recorded configuration has to suit, for the command's own batch. */
  needs(own: OwnBatch): JobNeeds {
    const { budgetBytes, worldSize, baseRung, expandableSegments } = this;
    const expandable = expandableSegments !== 'out of the question';
    return { budgetBytes, worldSize, baseRung, own, expandable, isCutByHook: this.isCutByHook };
  }

  /** Whether the hook sets the micro-batches: the loop keeps its own batches, of whatever size. */
  get isCutByHook(): boolean {
    return this.carrier('micro_batch') === 'hook';
  }

  /** Whether the loop keeps its own batches, which have no one size that is known, as nobody asks for others. */
  get keepsUnknown(): boolean {
    const { purpose, options } = this.request;
    return (
      purpose !== 'find-batch' && options.effectiveBatch === null && this.isCutByHook && this.own.microBatch === null
    );
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
