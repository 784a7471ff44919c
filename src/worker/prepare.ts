import { longestStartMs } from '../common/bounds.js';
import { OomtuneError } from '../common/errors.js';
import { findCommand } from '../common/executable.js';
import { filesAnswer } from '../common/far-files.js';
import type { Device } from '../contract/launch.js';
import { jobEnvironment } from './command/environment.js';
import { type CommandPlan, recognise } from './command/index.js';
import { pathsOf } from './command/named-paths.js';
import { askInterpreter } from './command/torch.js';
import { requireKnob } from './knob/require-knob.js';
import { resolveBudget, suitableDevices } from './memory/device.js';
import { requireOneMachine } from './one-machine.js';
import { Target } from './target.js';
import type { WorkDeps, WorkRequest } from './types.js';

/** Understands a request: its command, interpreter and devices. Starts nothing that lasts. */
export async function prepare(request: WorkRequest, deps: WorkDeps): Promise<Target> {
  const { options } = request;
  await filesAnswer(pathsOf(request.command, options, request.environment), longestStartMs(), deps.signal);
  const environment = jobEnvironment(options, request.environment);
  findCommand(request.command[0] as string, environment, options.cwd); // before anything is said of what is not there
  const plan = await recognise(request.command, {
    cwd: options.cwd,
    env: environment,
    preset: options.preset,
    stdin: request.input?.text() ?? null,
    worldSize: options.gpus > 1 ? options.gpus : null,
    ...(request.knob === undefined ? {} : { knobs: new Set([request.knob.name]) }),
  });
  if (options.tune) requireOneMachine(plan);
  // A script under `run --no-tune` needs no torch.
  const asking = options.tune ? askInterpreter(plan, options.cwd, environment) : null;
  const [found, interpreter] = await Promise.all([deps.runtime.devices(), asking, deps.records()]);
  const devices = suitableDevices(found, options);
  const torch = interpreter?.torch ?? null;
  const target = new Target(request, deps, plan, interpreter, devices, environment);
  resolveBudget(options.budget, devices[0] as Device); // says now what would be wrong later
  if (interpreter !== null) deps.progress({ type: 'interpreter', ...interpreter });
  if (request.knob !== undefined) requireKnob(request.knob.name, plan);
  else if (request.purpose === 'find-batch' && target.carrier('micro_batch') === 'none')
    throw noKnob(plan.program, torch);
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
