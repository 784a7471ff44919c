import { HOST, isHost } from '../../contract/device-id.js';
import type { JobOptions } from '../../contract/options.js';
import type { Recommendation } from '../../contract/recommendation.js';
import { configOf } from '../../contract/rung.js';
import { knobVariables } from '../../worker/command/index.js';

const MIB = 1024 ** 2;
/**
 * Of the host, beside the budget, which counts what the job allocates: Python with torch before its first tensor (300 MiB with torch 2.15),
 * oomtune and its supervisor (150 MiB), and some data that the script maps.
 */
const BESIDE_MIB = 1024;

/** What a job needs of a cluster: how many GPUs and how much of each, or how much of the host's memory. */
export interface Allotment {
  name: string;
  /** 0: it works in the host's memory. */
  gpus: number;
  /** On each GPU; of the host where it has none. Null: as much as there is. */
  mib: number | null;
  /** The host's memory with what oomtune itself takes of it; null: not known. */
  hostMib: number | null;
  /** The recommended size, for programs that read it from their environment. */
  env: Record<string, string>;
}

/** The host's memory for a budget of so much of it. */
export const hostMibOf = (mib: number): number => mib + BESIDE_MIB;

/** Of a recorded configuration. */
export function allotmentOf(found: Recommendation): Allotment {
  const [, device] = found.key.split(':');
  const onHost = isHost(device ?? null);
  const mib = Math.ceil(found.budget_bytes / MIB);
  return {
    name: found.name,
    gpus: onHost ? 0 : found.world_size,
    mib,
    hostMib: onHost ? hostMibOf(mib) : null,
    env: knobVariables(configOf(found, found)),
  };
}

/** The options with which a job finds the configuration that its size was taken from; what was asked for stays. */
export function sizedBy(options: JobOptions, found: Recommendation): JobOptions {
  const onHost = isOnHost(found);
  return {
    ...options,
    name: found.name,
    device: onHost ? HOST : options.device,
    gpus: onHost ? options.gpus : found.world_size,
    budget: options.budget ?? budgetOf(found),
  };
}

/** The words of `oomtune run` under which it finds this very configuration again. */
export function runningAs(found: Recommendation): string[] {
  const onHost = isOnHost(found);
  return [
    ...['--name', found.name],
    ...(onHost ? ['--device', HOST] : []),
    ...['--budget', budgetOf(found)],
    // On the host the command alone tells how many processes it has
    ...(found.world_size > 1 && !onHost ? ['--gpus', String(found.world_size)] : []),
  ];
}

const isOnHost = ({ key }: Recommendation): boolean => isHost(key.split(':')[1]);

function budgetOf({ budget_bytes: bytes }: Recommendation): string {
  const mib = bytes / MIB;
  return Number.isInteger(mib) ? `${mib}MiB` : `${bytes}B`;
}
