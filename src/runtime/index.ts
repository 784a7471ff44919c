import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { longestStartMs } from '../common/bounds.js';
import { OomtuneError, usageError } from '../common/errors.js';
import { findCommand } from '../common/executable.js';
import { filesAnswer } from '../common/far-files.js';
import { unusableFolder } from '../common/refusal.js';
import { systemText } from '../common/regular-file.js';
import type { Device } from '../contract/launch.js';
import { isHost } from '../devices/index.js';
import { adopt } from './adopt.js';
import { listDevices, RUN_MARK } from './devices.js';
import { preloadEnvironment } from './environment.js';
import { mpsEnvironment, type Offers, offers } from './limits.js';
import { loadNative, type Native, type NativeInventory } from './native.js';
import { readExit } from './records.js';
import { checkSpec, encodeSpec, type LedgerDevice } from './spec.js';
import { started, startFailure } from './start.js';
import type { LaunchSpec, Run, Runtime } from './types.js';

export type * from './types.js';

const NO_DRIVER_MS = 10_000;
/** How often a start that waits for a file system asks whether it was given up. */
const LOOK_MS = 200;

class LocalRuntime implements Runtime {
  private known: Map<string, Device> | undefined;
  private offered: Offers | undefined;
  /** What was said when no driver was found, and when. */
  private without: { inventory: NativeInventory; at: number } | undefined;

  constructor(private readonly native: Native) {}

  async devices(): Promise<Device[]> {
    const inventory = await this.inventory();
    this.offered = offers();
    const devices = listDevices(inventory, process.env.CUDA_VISIBLE_DEVICES, this.offered);
    this.known = new Map(devices.map((device) => [device.id, device]));
    return devices;
  }

  /** Where there is no driver it is looked for only now and then: a daemon asks for every job. */
  private async inventory(): Promise<NativeInventory> {
    const { without } = this;
    if (without !== undefined && Date.now() - without.at < NO_DRIVER_MS) return without.inventory;
    const inventory = await this.native.addon.inventory();
    this.without = inventory.found || inventory.error !== '' ? undefined : { inventory, at: Date.now() };
    return inventory;
  }

  async launch(spec: LaunchSpec): Promise<Run> {
    checkSpec(spec);
    await this.filesAnswer(spec);
    if (!existsSync(spec.cwd) || !statSync(spec.cwd).isDirectory()) {
      throw usageError(`There is no folder ${spec.cwd}.`, 'Name an existing folder with --cwd.');
    }
    findCommand(spec.argv[0] as string, spec.env, spec.cwd);
    const devices = await this.ledgerDevices(spec.devices);
    const preload = preloadEnvironment(spec.devices, spec.env, this.native.folder);
    const env = this.environment(spec, devices, preload.env);
    mkdirSync(spec.dir, { recursive: true, mode: 0o700 });
    const file = join(spec.dir, 'spec');
    const text = encodeSpec(spec, env, devices, preload.standIn, this.regions(spec.devices));
    writeFileSync(file, text, { mode: 0o600, flag: 'wx' });
    try {
      await started(this.native, spec);
    } catch (error) {
      rmSync(file, { force: true });
      throw error;
    }
    const run = await this.adopt(spec.dir);
    if (!run) throw unusableFolder(spec.dir, new Error('the supervisor left no record in it'));
    const exit = readExit(spec.dir);
    if (exit?.ended_by !== 'start-failed') return run;
    rmSync(spec.dir, { recursive: true, force: true });
    throw startFailure(exit.error ?? '', spec.argv[0] as string, spec.dir);
  }

  /** What the start looks at by itself, before a supervisor can be asked to. */
  private async filesAnswer({ argv, cwd, env, givenUp }: LaunchSpec): Promise<void> {
    const given = new AbortController();
    const timer = setInterval(() => givenUp?.() && given.abort(new Error('the launch was given up')), LOOK_MS);
    const folders = (env.PATH ?? '').split(':');
    try {
      const paths = [cwd, argv[0] as string, ...folders].map((path) => resolve(cwd, path));
      await filesAnswer(paths, longestStartMs(), given.signal);
    } finally {
      clearInterval(timer);
    }
  }

  adopt(dir: string): Promise<Run | null> {
    return adopt(this.native.addon, dir);
  }

  versions(): { addon: string; supervisor: string; driver: string | null } {
    const supervisor = execFileSync(this.native.supervisor, ['--version'], { encoding: 'utf8' }).trim();
    const driver = /Module.*?\s(\d+\.\d+(?:\.\d+)?)\s/.exec(systemText('/proc/driver/nvidia/version'))?.[1] ?? null;
    return { addon: this.native.addon.version, supervisor, driver };
  }

  /** Devices as the ledger counts them: the job's CUDA ordinals in the order of the launch's devices. */
  private async ledgerDevices(ids: string[]): Promise<LedgerDevice[]> {
    const wantsGpu = ids.some((id) => !isHost(id));
    if (wantsGpu && !ids.every((id) => isHost(id) || this.known?.has(id))) await this.devices();
    let ordinal = 0;
    return ids.map((id) => {
      if (isHost(id)) return { index: 0, name: id, uuid: '' };
      const uuid = this.known?.get(id)?.uuid;
      if (!uuid) {
        throw new OomtuneError(
          'OOMTUNE_DEVICE_MISSING',
          `There is no device ${id} on this machine.`,
          '`oomtune devices` lists those that are there; `--device cpu` needs none.',
        );
      }
      ordinal += 1;
      return { index: ordinal, name: id, uuid };
    });
  }

  /** Regions of the kernel's dmem controller that the launch is to be held to. */
  private regions(ids: string[]): string[] {
    const limited = ids.map((id) => this.known?.get(id)).filter((device) => device?.first_party_limit === 'dmem');
    return limited.flatMap((device) => this.offered?.regions.get(device?.bus ?? '') ?? []);
  }

  /** What MPS is told, where it runs and the user has not said otherwise. */
  private mps(spec: LaunchSpec, gpus: number): Record<string, string> {
    const runs = spec.devices.some((id) => this.known?.get(id)?.first_party_limit === 'mps');
    if (!runs || spec.budgetBytes === null || spec.env.CUDA_MPS_PINNED_DEVICE_MEM_LIMIT !== undefined) return {};
    return mpsEnvironment(gpus, spec.budgetBytes);
  }

  private environment(
    spec: LaunchSpec,
    devices: LedgerDevice[],
    preload: Record<string, string>,
  ): Record<string, string> {
    const gpus = devices.filter(({ index }) => index > 0).map(({ uuid }) => uuid);
    return {
      ...spec.env,
      ...preload,
      ...this.mps(spec, gpus.length),
      // By uuid, as indexes mean other GPUs to CUDA than to NVML; none where the job has no GPU.
      CUDA_VISIBLE_DEVICES: gpus.join(','),
      OOMTUNE_JOB_ID: spec.jobId,
      OOMTUNE_LAUNCH: String(spec.launch),
      OOMTUNE_LEDGER: join(spec.dir, 'ledger'),
      [RUN_MARK]: spec.dir,
    };
  }
}

/** Throws OOMTUNE_NATIVE_MISSING when the native parts are not built. */
export function createRuntime(): Runtime {
  return new LocalRuntime(loadNative());
}
