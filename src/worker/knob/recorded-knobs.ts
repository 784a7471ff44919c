import type { Device } from '../../contract/launch.js';
import { jobEnvironment } from '../command/environment.js';
import { type CommandPlan, defaultName, digest, recognise } from '../command/index.js';
import { knobNames, withKnob } from '../command/placeholders.js';
import { configKey, knobKey } from '../key.js';
import { resolveBudget, suitableDevices } from '../memory/device.js';
import { worldSizeOf } from '../target.js';
import type { WorkDeps, WorkRequest } from '../types.js';
import { nothingRecorded } from './nothing-recorded.js';

/**
 * The request with the recorded values of the command's own knobs in their places, except the one that is searched. The rest is as
 * with any command of those words. Throws OOMTUNE_BAD_PLACEHOLDER where nothing is recorded.
 */
export async function withRecordedKnobs(request: WorkRequest, deps: WorkDeps): Promise<WorkRequest> {
  const all = knobNames(request.command);
  const names = [...all].filter((name) => name !== request.knob?.name);
  if (names.length === 0) return request;
  const { options, command } = request;
  const env = jobEnvironment(options, request.environment);
  const worldSize = options.gpus > 1 ? options.gpus : null;
  const plan = await recognise(command, { cwd: options.cwd, env, preset: options.preset, worldSize, knobs: all });
  const devices = suitableDevices(await deps.runtime.devices(), options);
  const { recommendations } = await deps.records();
  const filled = { ...request, knobs: [...(request.knobs ?? [])] };
  for (const name of names) {
    const key = knobKey(keyOf(plan, devices, request), name);
    const recorded = await recommendations.get(key);
    if (recorded?.status !== 'verified' || recorded.knob === undefined) throw nothingRecorded(name, command);
    const known = { name, value: recorded.knob.value };
    filled.command = withKnob(filled.command, known);
    filled.knobs.push(known);
    const other = recorded.command_digest === digest(plan) ? '' : ', for other flags';
    deps.progress({ type: 'note', text: `{${name}} is ${known.value}, as recorded in ${key}${other}.` });
  }
  return filled;
}

function keyOf(plan: CommandPlan, devices: Device[], { options }: WorkRequest): string {
  const device = devices[0] as Device;
  const budget = resolveBudget(options.budget, device);
  return configKey(options.name ?? defaultName(plan), device, budget, worldSizeOf(plan, devices, options.gpus));
}
