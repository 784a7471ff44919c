import { formatSpan } from '../../common/span.js';
import type { JobOptions } from '../../contract/options.js';
import type { StoredJob } from '../../store/index.js';

/** An option's words on the command line; none: it is as `submit` would have it without them. */
type Words = (options: JobOptions) => (string | number)[];

const value =
  (flag: string, of: (options: JobOptions) => string | number | null | undefined, preset?: string | number): Words =>
  (options) => {
    const given = of(options);
    return given === null || given === undefined || given === preset ? [] : [flag, given];
  };
const switched =
  (flag: string, of: (options: JobOptions) => boolean | undefined): Words =>
  (options) =>
    of(options) ? [flag] : [];
const each =
  (flag: string, of: (options: JobOptions) => string[] | undefined): Words =>
  (options) =>
    (of(options) ?? []).flatMap((one) => [flag, one]);

const FOLDER = value('--cwd', ({ cwd }) => cwd);
const WORDS: Words[] = [
  value('--name', ({ name }) => name),
  FOLDER,
  each('--env', ({ env }) => env),
  value('--env-file', ({ envFile }) => envFile),
  value('--device', ({ device }) => device),
  value('--budget', ({ budget }) => budget),
  value('--gpus', ({ gpus }) => gpus, 1),
  switched('--exclusive', ({ exclusive }) => exclusive),
  value('--effective-batch', ({ effectiveBatch }) => effectiveBatch),
  value('--min-batch', ({ minBatch }) => minBatch, 1),
  value('--max-batch', ({ maxBatch }) => maxBatch),
  value('--micro-batch-tokens', ({ microBatchTokens }) => microBatchTokens),
  value('--amp', ({ amp }) => amp, 'auto'),
  value('--checkpointing', ({ checkpointing }) => checkpointing, 'auto'),
  value('--chunked-loss', ({ chunkedLoss }) => chunkedLoss, 'auto'),
  value('--allow', ({ allow }) => allow?.join(',')),
  value('--accumulation', ({ accumulation }) => accumulation, 'auto'),
  value('--cut', ({ cut }) => cut, 'auto'),
  switched('--exact', ({ exact }) => exact),
  value('--objective', ({ objective }) => objective, 'max-batch'),
  value('--headroom', ({ headroomPct }) => headroomPct, 3),
  value('--preset', ({ preset }) => preset, 'auto'),
  value('--steps', ({ steps }) => steps, 3),
  switched('--no-fork', ({ fork }) => fork === false),
  switched('--probe-eval', ({ probeEval }) => probeEval === true),
  value('--timeout', ({ timeoutSeconds }) => timeoutSeconds),
  value('--max-launches', ({ maxLaunches }) => maxLaunches),
  value('--priority', ({ priority }) => priority, 0),
  value('--time', ({ timeSeconds }) => (timeSeconds == null ? null : formatSpan(timeSeconds))),
  each('--after', ({ after }) => after),
  each('--after-any', ({ afterAny }) => afterAny),
  ({ share, shareAuto }) => (shareAuto ? ['--share=auto'] : share ? ['--share'] : []),
  value('--gpu-model', ({ gpuModel }) => gpuModel),
  value('--host', ({ host }) => host),
  each('--label', ({ labels }) => labels),
  // Its argument may begin with a dash
  ({ resumeArg }) => (resumeArg === null ? [] : [`--resume-arg=${resumeArg}`]),
  value('--retries', ({ retries }) => retries, 2),
];
/** What `submit` has not. */
const IN_FOREGROUND: Words[] = [
  switched('--no-tune', ({ tune }) => !tune),
  switched('--restart', ({ restart }) => restart),
  switched('--requeue', ({ requeue }) => requeue),
];

/** The options that a job was given, but for its folder. */
export function givenOptions(options: JobOptions): string[] {
  const words = [...WORDS.filter((one) => one !== FOLDER), ...IN_FOREGROUND];
  return words.flatMap((of) => of(options)).map(String);
}

/**
 * The command that submits such a job again, with every option that is not as it is without being given. Of variables only
 * the names are known. A member of a sweep or an array is submitted alone.
 */
export function repeatCommand({ options, command, slurm }: Pick<StoredJob, 'options' | 'command' | 'slurm'>): string[] {
  const words = WORDS.flatMap((of) => of(options)).map(String);
  const via = slurm == null ? [] : ['--via', 'slurm', ...(slurm.partition ? ['--partition', slurm.partition] : [])];
  return ['oomtune', 'submit', ...words, ...via, '--', ...command];
}
