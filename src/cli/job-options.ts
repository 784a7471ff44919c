import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { z } from 'zod';
import { usageError } from '../common/errors.js';
import { isFolder } from '../common/home.js';
import { parseSize } from '../common/size.js';
import { parseSpan } from '../common/span.js';
import { DEFAULT_ACCELERATOR, DEVICE_CHOICE, DEVICE_CHOICES, HOST, isHost, isNumbered } from '../contract/device-id.js';
import { hostLabels, jobTags } from '../contract/fields.js';
import { KNOB_NAME } from '../contract/knob.js';
import { ALLOWANCE_NAMES, type JobOptions, MOST_PROBE_STEPS } from '../contract/options.js';
import { jobEnvironment } from '../worker/command/environment.js';
import { knobNames, placeholders } from '../worker/command/placeholders.js';
import { presetNamed } from '../worker/presets/load.js';
import type { KnobWish } from '../worker/types.js';
import { notifyTarget } from './notify.js';

/** Options from commander: strings, or true for a flag. */
type RawOptions = Record<string, unknown>;

/** A whole number of at least `least`; the message completes "Expected --flag to be …". */
const whole = (least: number, most = Number.MAX_SAFE_INTEGER) => {
  const range = most === Number.MAX_SAFE_INTEGER ? `of at least ${least}` : `from ${least} to ${most}`;
  return z
    .string()
    .regex(/^[+-]?\d+$/, `a whole number ${range}`)
    .transform(Number)
    .refine((value) => Number.isSafeInteger(value) && value >= least && value <= most, `a whole number ${range}`);
};

const orNull = <T extends z.ZodType>(given: T) => given.nullable().default(null);

const nonEmpty = (what: string) => z.string().refine((text) => text.trim() !== '', what);

const allowances = z
  .string()
  .transform((text) => text.split(',').map((name) => name.trim()))
  .refine(
    (names) => names.every((name) => (ALLOWANCE_NAMES as readonly string[]).includes(name)),
    `one or more of ${ALLOWANCE_NAMES.join(', ')}, with commas between`,
  )
  .transform((names) => [...new Set(names)] as (typeof ALLOWANCE_NAMES)[number][])
  .optional();

const TIME = 'a time such as 4h, 1h30m, 45s or 2:30:00';
const span = z
  .string()
  .refine((text) => parseSpan(text) !== null, TIME)
  .transform(parseSpan);
const priority = whole(-1_000_000, 1_000_000);

/** `@` alone is the latest job, so no job can be called by that name. */
const NAME = /^(?!@$)[^\s:{}*?[\]\\\p{C}-][^\s:{}*?[\]\\\p{C}]{0,99}$/u;
const NAMES =
  'a name of 1 to 100 characters without spaces, colons, brackets, "*", "?" and "\\", that does not begin with "-" and is not "@"';

/** What is given twice counts once. */
const distinct = (given: string[]): string[] => [...new Set(given)];
const labels = hostLabels.transform(distinct);

const raw = z.object({
  name: orNull(z.string().regex(NAME, NAMES)),
  device: orNull(z.string().regex(DEVICE_CHOICE, DEVICE_CHOICES)),
  budget: orNull(z.string()),
  gpus: whole(1, 1024).default(1),
  exclusive: z.boolean().default(false),
  effectiveBatch: orNull(whole(1)),
  minBatch: whole(1).default(1),
  maxBatch: orNull(whole(1)),
  amp: z.enum(['auto', 'off', 'bf16', 'fp16']).default('auto'),
  checkpointing: z.enum(['auto', 'off', 'on']).default('auto'),
  chunkedLoss: z.enum(['auto', 'off']).default('auto'),
  allow: allowances,
  accumulation: z.enum(['auto', 'off']).default('auto'),
  cut: z.enum(['auto', 'model', 'loader']).default('auto'),
  microBatchTokens: z.union([z.literal('auto'), whole(1)], 'auto or a whole number of tokens, at least 1').optional(),
  exact: z.boolean().default(false),
  objective: z.enum(['max-batch', 'throughput']).default('max-batch'),
  headroom: z
    .string()
    .regex(/^\d+(\.\d+)?%?$/, 'a percentage from 0 to 90')
    .transform((text) => Number(text.replace('%', '')))
    .refine((value) => value <= 90, 'a percentage from 0 to 90')
    .default(3),
  preset: nonEmpty('the name of a preset, auto or none').default('auto'),
  steps: whole(2, MOST_PROBE_STEPS).default(3),
  fork: z.boolean().default(true),
  probeEval: z.boolean().optional(),
  timeout: z
    .string()
    .regex(/^\d+(\.\d+)?$/, 'a number of seconds above 0')
    .transform(Number)
    .refine((value) => value > 0 && value < 2 ** 31, 'a number of seconds above 0')
    .optional(),
  time: span.optional(),
  maxLaunches: orNull(whole(1)),
  env: z.array(z.string()).default([]),
  envFile: nonEmpty('the path of a file').optional(),
  cwd: nonEmpty('a folder').optional(),
  tune: z.boolean().default(true),
  priority: priority.optional(),
  nice: priority.optional(),
  after: z.array(nonEmpty('a job id')).default([]),
  afterAny: z.array(nonEmpty('a job id')).optional(),
  share: z.union([z.boolean(), z.literal('auto')], 'auto, or given without a value').default(false),
  gpuModel: orNull(nonEmpty('a part of a GPU model')),
  host: orNull(nonEmpty('the name of a host')),
  label: labels.optional(),
  notify: z.string().optional(),
  tag: jobTags.transform(distinct).optional(),
  resumeArg: orNull(nonEmpty('an argument')),
  retries: whole(0, 1000).default(2),
  restart: z.boolean().default(false),
  requeue: z.boolean().optional(),
});

/** Checks the options, each and together. Throws OOMTUNE_USAGE, OOMTUNE_BAD_SIZE or OOMTUNE_BAD_PLACEHOLDER. */
export function toJobOptions(values: RawOptions, command: string[]): JobOptions {
  const parsed = raw.safeParse(values);
  if (!parsed.success) throw wrongOption(parsed.error, values);
  const { headroom, timeout, time, envFile, cwd, nice, share, label, tag, notify, ...rest } = parsed.data;
  const options: JobOptions = {
    ...rest,
    share: share !== false,
    ...(share === 'auto' ? { shareAuto: true } : {}),
    ...(label === undefined ? {} : { labels: label }),
    ...(tag === undefined ? {} : { tags: tag }),
    ...(notifyTarget(notify) === null ? {} : { notify: true }),
    priority: toPriority(parsed.data) ?? 0,
    headroomPct: headroom,
    timeoutSeconds: timeout ?? null,
    timeSeconds: time ?? null,
    envFile: envFile === undefined ? null : resolve(envFile),
    cwd: folder(cwd),
  };
  checkTogether(options);
  if (options.budget !== null) parseSize(options.budget, 2 ** 50); // a percentage needs some total to be read at all
  if (!['auto', 'none'].includes(options.preset)) presetNamed(options.preset);
  jobEnvironment(options, {}); // throws for a name or a file that cannot be read; the values are read again at launch
  placeholders(command, knobNames(command)); // throws for one that does not exist; what is recorded tells of the rest
  return options;
}

const knob = z.object({
  knob: z.string().optional(),
  knobMin: orNull(whole(1)),
  knobMax: orNull(whole(1)),
  knobMultipleOf: orNull(whole(1)),
});

/** `--knob` of find-batch, written `seq_len` or `seq_len={seq_len}`; null: the batch is searched. Throws OOMTUNE_USAGE. */
export function toKnob(values: RawOptions): KnobWish | null {
  const parsed = knob.safeParse(values);
  if (!parsed.success) throw wrongOption(parsed.error, values);
  const { knob: written, knobMin: min, knobMax: max, knobMultipleOf: multipleOf } = parsed.data;
  if (written === undefined) {
    if (min === null && max === null && multipleOf === null) return null;
    throw usageError(
      '--knob-min, --knob-max and --knob-multiple-of bound a --knob.',
      'Name it: --knob seq_len={seq_len}.',
    );
  }
  const [, name, place] = /^([^=]*)(?:=\{([^{}]*)\})?$/.exec(written) ?? [];
  if (name === undefined || !KNOB_NAME.test(name) || (place !== undefined && place !== name)) {
    throw usageError(
      `Expected --knob to be a name and its place in the command, got ${JSON.stringify(written)}.`,
      'Such as --knob seq_len={seq_len}, with {seq_len} where the command takes the value.',
    );
  }
  if (!knobNames([`{${name}}`]).has(name)) {
    throw usageError(
      `--knob ${name} is too near to a placeholder of oomtune's own.`,
      'find-batch searches the batch by itself; choose another name for another knob.',
    );
  }
  const least = min ?? 1;
  if (max !== null && Math.ceil(least / (multipleOf ?? 1)) > Math.floor(max / (multipleOf ?? 1))) {
    throw usageError(
      `No value lies between --knob-min ${least} and --knob-max ${max}${multipleOf === null ? '' : ` that is a multiple of ${multipleOf}`}.`,
      'Give a smallest value that is no larger than the largest.',
    );
  }
  return { name, min, max, multipleOf };
}

/** Of `daemon start --label`. Throws OOMTUNE_USAGE. */
export function toLabels(value: unknown): string[] {
  const parsed = z.object({ label: labels }).safeParse({ label: value });
  if (!parsed.success) throw wrongOption(parsed.error, { label: value });
  return parsed.data.label;
}

const changes = z.object({
  priority: priority.optional(),
  nice: priority.optional(),
  time: z
    .literal('none')
    .transform(() => null)
    .or(span)
    .optional(),
});

/** The changes of `edit`. Throws OOMTUNE_USAGE. */
export function toChanges(values: RawOptions): Pick<Partial<JobOptions>, 'priority' | 'timeSeconds'> {
  const parsed = changes.safeParse(values);
  if (!parsed.success) throw wrongOption(parsed.error, values);
  const { time } = parsed.data;
  const wanted = toPriority(parsed.data);
  if (wanted === undefined && time === undefined)
    throw usageError('edit was not told what to change.', 'Give it --priority, --nice or --time.');
  return {
    ...(wanted === undefined ? {} : { priority: wanted }),
    ...(time === undefined ? {} : { timeSeconds: time }),
  };
}

function toPriority(given: { priority?: number | undefined; nice?: number | undefined }): number | undefined {
  if (given.priority !== undefined && given.nice !== undefined)
    throw usageError('--nice and --priority say the same thing twice.', 'Leave one of the two out.');
  return given.nice === undefined ? given.priority : 0 - given.nice;
}

function wrongOption({ issues: [issue] }: z.ZodError, values: RawOptions): Error {
  const name = String(issue?.path[0] ?? 'option');
  const wish = name === 'time' ? TIME : (issue?.message ?? 'something else');
  // Of an option that may be given several times only one is wrong
  const got = Array.isArray(values[name]) ? values[name][Number(issue?.path[1] ?? 0)] : values[name];
  return usageError(
    `Expected ${flag(name)} to be ${wish}, got ${JSON.stringify(got)}.`,
    'See `--help` of the verb for what each option takes.',
  );
}

function checkTogether(options: JobOptions): void {
  const { minBatch, maxBatch, effectiveBatch, exact, amp, device, gpus, share, exclusive } = options;
  if (share && exclusive)
    throw usageError('--share and --exclusive ask for opposite things.', 'Leave one of the two out.');
  if (maxBatch !== null && minBatch > maxBatch) {
    throw usageError(
      `--min-batch ${minBatch} is above --max-batch ${maxBatch}.`,
      'Give a smallest micro-batch that is no larger than the largest.',
    );
  }
  if (effectiveBatch !== null && minBatch > effectiveBatch) {
    throw usageError(
      `--min-batch ${minBatch} is above --effective-batch ${effectiveBatch}.`,
      'A micro-batch is a part of the effective batch: lower the one or raise the other.',
    );
  }
  if (options.microBatchTokens !== undefined && options.cut === 'loader') {
    throw usageError(
      '--micro-batch-tokens cannot be had with --cut loader.',
      "Tokens are counted at the model's call, so leave --cut out.",
    );
  }
  if (exact && options.allow?.length) {
    throw usageError(
      `--exact forbids --allow ${options.allow.join(',')}.`,
      'What has to be allowed changes the numerics: leave one of the two out.',
    );
  }
  if (exact && (amp === 'bf16' || amp === 'fp16')) {
    throw usageError(
      `--exact forbids --amp ${amp}.`,
      'Mixed precision changes the numerics: leave one of the two out.',
    );
  }
  if (isHost(device) && options.gpuModel !== null) {
    throw usageError(
      `--gpu-model ${options.gpuModel} cannot be had with --device ${HOST}.`,
      `Leave one of the two out, or choose --device ${DEFAULT_ACCELERATOR}.`,
    );
  }
  if (isHost(device) && gpus > 1) {
    throw usageError(
      `--gpus ${gpus} cannot be had with --device ${HOST}.`,
      `Leave --gpus out, or choose --device ${DEFAULT_ACCELERATOR}.`,
    );
  }
  if (device !== null && isNumbered(device) && gpus > 1) {
    throw usageError(
      `--device ${device} is one GPU, but --gpus asks for ${gpus}.`,
      `Choose --device ${DEFAULT_ACCELERATOR}.`,
    );
  }
}

function folder(cwd: string | undefined): string {
  const path = resolve(cwd ?? '.');
  if (!isFolder(path)) {
    throw usageError(
      existsSync(path) ? `${path} is no folder.` : `The folder ${path} does not exist.`,
      'Check the path given to --cwd.',
    );
  }
  return path;
}

/** `effectiveBatch` → `--effective-batch`. */
const flag = (name: string): string => `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
