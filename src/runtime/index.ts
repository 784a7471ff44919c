import { execFileSync } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { longestStartMs } from '../common/bounds.js';
import { findCommand } from '../common/executable.js';
import { filesAnswer } from '../common/far-files.js';
import { DEFAULT_ACCELERATOR, isHost, kindNameOf } from '../contract/device-id.js';
import type { Device } from '../contract/launch.js';
import { dmemRegions } from '../devices/dmem.js';
import { KINDS } from '../devices/index.js';
import { RUN_MARK } from '../devices/process.js';
import { adopt, lostStart } from './adopt.js';
import { Devices } from './devices.js';
import { preloadEnvironment } from './environment.js';
import { loadNative, type Native } from './native.js';
import { readExit } from './records.js';
import { checkSpec, encodeSpec, type LedgerDevice } from './spec.js';
import { started, startFailure } from './start.js';
import type { LaunchSpec, Run, Runtime } from './types.js';

export type * from './types.js';

/** How often a start that waits for a file system checks whether it was given up. */
const LOOK_MS = 200;

class LocalRuntime implements Runtime {
  readonly #devices: Devices;

  constructor(private readonly native: Native) {
    this.#devices = new Devices(native.addon);
  }

  devices(): Promise<Device[]> {
    return this.#devices.list();
  }

  async launch(spec: LaunchSpec): Promise<Run> {
    checkSpec(spec);
    await this.filesAnswer(spec);
    findCommand(spec.argv[0] as string, spec.env, spec.cwd);
    const devices = await this.#devices.named(spec.devices);
    const preload = preloadEnvironment(spec.devices, spec.env, this.native.folder);
    const env = jobEnvironment(spec, devices, preload.env);
    mkdirSync(spec.dir, { recursive: true, mode: 0o700 });
    const file = join(spec.dir, 'spec');
    const text = encodeSpec(spec, env, ledgerDevices(devices), preload.standIn, regionsOf(devices));
    writeFileSync(file, text, { mode: 0o600, flag: 'wx' });
    try {
      await started(this.native, spec);
    } catch (error) {
      rmSync(file, { force: true });
      throw error;
    }
    const run = (await this.adopt(spec.dir)) ?? lostStart(this.native.addon, spec.dir);
    const exit = readExit(spec.dir);
    if (exit?.ended_by !== 'start-failed') return run;
    rmSync(spec.dir, { recursive: true, force: true });
    throw startFailure(exit.error ?? '', spec.argv[0] as string, spec.dir);
  }

  /** Checks the files that the start itself uses, before the supervisor can check its own. */
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
    return {
      addon: this.native.addon.version,
      supervisor,
      driver: KINDS[DEFAULT_ACCELERATOR].driver?.version() ?? null,
    };
  }
}

/** The ledger's numbers: 0 is the host, others count up in the order of the launch. */
function ledgerDevices(devices: Device[]): LedgerDevice[] {
  let ordinal = 0;
  return devices.map(({ id, uuid }) => {
    if (isHost(id)) return { index: 0, name: id, uuid: '' };
    ordinal += 1;
    return { index: ordinal, name: id, uuid };
  });
}

/** The kernel's dmem regions that limit the launch. */
function regionsOf(devices: Device[]): string[] {
  const limited = devices.filter((device) => device.first_party_limit === 'dmem');
  const regions = limited.length > 0 ? dmemRegions() : new Map<string, string>();
  return limited.flatMap((device) => regions.get(device.bus ?? '') ?? []);
}

function jobEnvironment(spec: LaunchSpec, devices: Device[], preload: Record<string, string>): Record<string, string> {
  const env = { ...spec.env, ...preload };
  for (const kind of Object.values(KINDS)) {
    Object.assign(
      env,
      kind.show(
        devices.filter(({ id }) => kindNameOf(id) === kind.name),
        spec,
      ),
    );
  }
  return {
    ...env,
    OOMTUNE_JOB_ID: spec.jobId,
    OOMTUNE_LAUNCH: String(spec.launch),
    OOMTUNE_LEDGER: join(spec.dir, 'ledger'),
    [RUN_MARK]: spec.dir,
  };
}

/** Throws OOMTUNE_NATIVE_MISSING when the native parts are not built. */
export const createRuntime = (): Runtime => new LocalRuntime(loadNative());
