import { OomtuneError } from '../../common/errors.js';
import { formatBytes, parseSize } from '../../common/size.js';
import { DEFAULT_ACCELERATOR, isHost, kindNameOf } from '../../contract/device-id.js';
import type { Device } from '../../contract/launch.js';
import type { JobOptions } from '../../contract/options.js';
import { KINDS } from '../../devices/index.js';

/** The devices that may run the job: the named, else every GPU (of `--gpu-model`), else the host. Throws OOMTUNE_DEVICE_MISSING. */
export function suitableDevices(all: Device[], options: JobOptions): Device[] {
  const gpus = all.filter((device) => !isHost(device.id));
  const wanted = options.device;
  if (isHost(wanted)) return all.filter((device) => isHost(device.id));
  let chosen = wanted === null ? gpus : gpus.filter(({ id }) => id === wanted || kindNameOf(id) === wanted);
  const model = options.gpuModel?.toLowerCase() ?? null;
  if (model !== null) chosen = chosen.filter((device) => device.model.toLowerCase().includes(model));
  if (chosen.length === 0 && wanted === null && model === null && options.gpus <= 1)
    return all.filter((device) => isHost(device.id));
  const healthy = chosen.filter((device) => device.fault === null);
  if (healthy.length < Math.max(1, options.gpus)) {
    const asked = wanted ?? (model === null ? `${options.gpus} GPUs` : `a GPU of model "${options.gpuModel}"`);
    const broken = chosen.find((device) => device.fault !== null);
    throw new OomtuneError(
      'OOMTUNE_DEVICE_MISSING',
      broken
        ? `The device ${broken.id} cannot be used: ${broken.fault}.`
        : `This machine does not have ${asked}; it has ${all.map((device) => device.id).join(', ')}.`,
      'See `oomtune devices`, or use --device cpu.',
    );
  }
  return healthy;
}

/** `--budget` in bytes on this device; without one, the kind's default share. */
export function resolveBudget(budget: string | null, device: Device): number {
  if (budget === null)
    return Math.floor(device.total_bytes * KINDS[kindNameOf(device.id) ?? DEFAULT_ACCELERATOR].defaultShare);
  const bytes = parseSize(budget, device.total_bytes);
  if (bytes > device.total_bytes) {
    throw new OomtuneError(
      'OOMTUNE_BAD_SIZE',
      `The budget ${budget} is more than ${device.id} has (${formatBytes(device.total_bytes)}).`,
      'Give a smaller --budget; without one the whole device is used.',
    );
  }
  return bytes;
}
