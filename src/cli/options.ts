import { type Command, Option } from 'commander';
import { DEVICE_CHOICES } from '../contract/device-id.js';

/** The options of all verbs. commander knows names only; job-options.ts checks the values, and is loaded when it is needed. */

/** `preset` is shown in the help; job-options.ts fills the value in. */
type Spec = [flags: string, about: string, more?: { preset?: string; many?: boolean; hidden?: boolean }];

/** Options by heading of the help; '': those of every verb. */
export type Options = Record<string, Spec[]>;

const WHERE = 'Where it runs:';
const BATCH = 'Batch and knobs:';
const SEARCH = 'How the search goes:';
const COMMAND = "The command's surroundings:";
const QUEUE = 'In the queue:';

export const WORK: Options = {
  [COMMAND]: [
    ['--name <name>', 'name of the job and of its recommendation', { preset: 'from the script' }],
    ['--env <name[=value]>', 'give the job this variable (repeatable)', { many: true }],
    ['--env-file <file>', 'give the job the variables in this file, read at launch'],
    ['--cwd <dir>', 'folder to run in', { preset: 'here' }],
  ],
  [WHERE]: [
    ['--device <device>', DEVICE_CHOICES, { preset: 'the first GPU, else cpu' }],
    ['--budget <size>', 'all bytes it may hold on one device: 24GiB, 800MiB, 80%'],
    ['--gpus <n>', 'number of GPUs', { preset: '1' }],
    ['--exclusive', 'no other job on its devices meanwhile, whatever its budget'],
  ],
  [BATCH]: [
    ['--effective-batch <n>', 'samples per optimizer step over all GPUs, kept exactly'],
    ['--min-batch <n>', 'smallest micro-batch to accept', { preset: '1' }],
    ['--max-batch <n>', 'largest micro-batch to try'],
    ['--amp <auto|off|bf16|fp16>', 'mixed precision; anything but auto fixes it', { preset: 'auto' }],
    ['--checkpointing <auto|off|on>', 'activation checkpointing; anything but auto fixes it', { preset: 'auto' }],
    [
      '--chunked-loss <auto|off>',
      'the loss of a language model in chunks of tokens, where that is needed; off forbids it',
      { preset: 'auto' },
    ],
    [
      '--allow <list>',
      'knobs that change the numerics, tried where nothing else fits: 8bit-optimizer, bf16-weights; never without this',
    ],
    ['--accumulation <auto|off>', 'gradient accumulation; off forbids it', { preset: 'auto' }],
    [
      '--cut <auto|model|loader>',
      "where a batch is cut into micro-batches: at the model's call, or at the DataLoader",
      { preset: 'auto: at the model, but by the framework where it accumulates by itself' },
    ],
    [
      '--micro-batch-tokens <tokens>',
      'samples of a micro-batch by their tokens, without needless padding: auto for as many as fit, or a limit',
      { preset: 'samples are counted' },
    ],
    ['--exact', 'nothing that changes the numerics: the command keeps its own precision'],
  ],
  [SEARCH]: [
    [
      '--objective <max-batch|throughput>',
      'the largest batch on the first rung that fits, or the fastest of all rungs',
      { preset: 'max-batch' },
    ],
    ['--headroom <pct>', 'part of the budget that the recommendation leaves free, in per cent', { preset: '3' }],
    ['--preset <preset>', 'NAME, auto or none (none: no hook either)', { preset: 'auto' }],
    ['--steps <n>', 'optimizer steps of a probe, at least 2', { preset: '3' }],
    ['--timeout <seconds>', 'longest that one launch may take'],
    ['--no-fork', 'start the command anew for each fresh process of the search'],
    ['--probe-eval', 'rehearse the job once, to see whether its evaluation, generation and saving fit, too'],
    ['--max-launches <n>', 'most starts of the command that the search may use'],
  ],
};

const work = (heading: string, ...flags: string[]): Spec[] =>
  (WORK[heading] as Spec[]).filter(([flag]) => flags.some((name) => flag.startsWith(`--${name} `)));

export const ESTIMATE: Options = {
  [COMMAND]: WORK[COMMAND] as Spec[],
  [BATCH]: work(BATCH, 'amp', 'checkpointing'),
  'What it works out:': [
    [
      '--card <card>',
      'a card to fit it into, by a part of its name (H100, 4090) or its memory (24GiB); repeatable',
      { preset: 'the usual ones', many: true },
    ],
    ['--micro-batch <n>', 'tell the peak at this micro-batch, too; repeatable', { many: true }],
    ...work(SEARCH, 'headroom'),
  ],
  [SEARCH]: work(SEARCH, 'preset', 'steps', 'timeout'),
};

export const NOTIFY: Options = {
  '': [
    [
      '--notify <who>',
      'a command to run, or a URL to post to, when it ends, steps down or waits for long',
      { preset: 'OOMTUNE_NOTIFY, else nobody' },
    ],
  ],
};

export const KNOB: Options = {
  [BATCH]: [
    ['--knob <name>', 'search the largest value of {name} in the command, not the batch: seq_len={seq_len}'],
    ['--knob-min <n>', 'smallest value of the knob to accept'],
    ['--knob-max <n>', 'largest value of the knob to try'],
    ['--knob-multiple-of <n>', 'only multiples of it', { preset: 'numbers as round as 2 % allow' }],
  ],
};

export const PLOT: Options = {
  [SEARCH]: [['--plot <file>', 'draw what fills the memory into this file, as SVG or PNG by its name']],
};

const TIME = '--time <time>';
const TIME_IS = 'end it after so long, searches included: 4h, 1h30m, 2:30:00';
const PRIORITY = ['--priority <n>', 'higher goes first'] as const;
const NICE: Spec = ['--nice <n>', 'lower goes first: --nice 5 is --priority -5'];

const RESUME_ARG: Spec = ['--resume-arg <arg>', 'added to the command when it is relaunched after progress'];
const RETRIES: Spec = ['--retries <n>', 'relaunches after a late out-of-memory error', { preset: '2' }];

export const RUN: Options = {
  [WHERE]: [[TIME, TIME_IS]],
  [SEARCH]: [
    ['--no-tune', 'only supervise: telemetry and budget'],
    ['--restart', 'after a late out-of-memory error start again however much was done'],
    ['--requeue', 'end with exit code 75 where a scheduler should start it again, at a smaller size'],
    // a job's, so that a cluster can hand them on
    [RESUME_ARG[0], RESUME_ARG[1], { hidden: true }],
    [RETRIES[0], RETRIES[1], { hidden: true }],
  ],
  '': [['--report <file>', 'write the JSON report of the run to this file']],
};

export const MANIFEST: Options = {
  'In the cluster:': [
    ['--image <image>', 'the image to run, with oomtune and the command in it'],
    ['--namespace <name>', 'namespace of the Job', { preset: "kubectl's" }],
    ['--queue <name>', "Kueue's LocalQueue, or with --limit kai a queue of KAI's"],
    [
      '--limit <gpu|hami|kai|runtime>',
      "how the GPU memory is asked for: whole GPUs, HAMi's resource, KAI's annotation, NVIDIA's runtime",
      { preset: 'gpu' },
    ],
    ['--redis-secret <name/key>', 'Secret with the URL of Redis, or none', { preset: 'oomtune/redis-url' }],
    [TIME, TIME_IS],
    RESUME_ARG,
    RETRIES,
  ],
};

export const EDIT: Options = {
  [QUEUE]: [[...PRIORITY], NICE, [TIME, 'end it after so long, from its start on; none: as long as it takes']],
};

export const SUBMIT: Options = {
  [QUEUE]: [
    ['--array <indices>', 'a job for each index, as {index} and OOMTUNE_ARRAY_INDEX: 0-59, or 0-59%4 for 4 at a time'],
    [
      '--sweep <name=values>',
      'a job for each value of {name} in the command: lr=1e-3,1e-4 or seed=0..4 (repeatable: every combination; 10,000 jobs at most)',
      { many: true },
    ],
    [...PRIORITY, { preset: '0' }],
    NICE,
    [TIME, `${TIME_IS}; what ends in time may go before a job that waits for more devices`],
    ['--after <job>', 'start only when this job has succeeded (repeatable)', { many: true }],
    ['--after-any <job>', 'start when this job has ended, however (repeatable)', { many: true }],
    [
      '--share [auto]',
      'may share a device with other jobs: reserves its recorded peak where no budget is given. auto: only where two jobs side by side get more done than taking turns, which is measured',
    ],
    ['--gpu-model <model>', 'only on GPUs whose model holds this text'],
    ['--host <host>', 'only on this host'],
    ['--label <label>', 'only on hosts whose daemon has this label, such as rack=b (repeatable)', { many: true }],
    ['--tag <tag>', 'a word of yours to find it by, with `status --tag` (repeatable)', { many: true }],
    RESUME_ARG,
    [RETRIES[0], `${RETRIES[1]}, or when the run was lost (a reboot)`, RETRIES[2]],
  ],
  'Through a cluster:': [
    ['--via <slurm>', 'have Slurm run it, with the resources that its recorded configuration needs'],
    ['--partition <name>', "Slurm's partition"],
    ['--account <name>', "Slurm's account"],
    ['--qos <name>', "Slurm's quality of service"],
    ['--sbatch <option>', 'another option of sbatch, such as --constraint=a100 (repeatable)', { many: true }],
  ],
};

/** For `daemon start` and `daemon run`. */
export const DAEMON: Options = {
  '': [
    ['--cpu-lanes <n>', 'jobs at a time with --device cpu', { preset: '1' }],
    ['--allow-insecure-redis', 'take jobs from a Redis that others on the network can write to'],
    ['--http-port <n>', 'port of the dashboard; 0: none', { preset: 'the first free one from 8421 on' }],
    ['--http-host <address>', 'address of this machine to serve it on', { preset: '127.0.0.1' }],
    ['--label <label>', 'say this of the host, for `submit --label`: rack=b, nvlink (repeatable)', { many: true }],
    ['--metrics-open', "let /metrics be read without the dashboard's token"],
  ],
};

/** For every verb. */
export const COMMON: Options = {
  '': [
    ['--json', 'one JSON document on stdout, nothing else'],
    ['--redis <url>', 'redis://, rediss:// or unix://', { preset: 'OOMTUNE_REDIS_URL, else its own Redis' }],
  ],
};

/** For `daemon run`. */
export const SYSTEM: Options = {
  '': [
    ['--system', 'one daemon for all users of the machine, whose jobs run as themselves; needs root'],
    ['--admin-group <group>', "its members may steer everybody's jobs", { preset: 'oomtune-admin' }],
  ],
};

/** An option takes only the values between bars, as in `<auto|off>`. */
export function addOptions(command: Command, options: Options): Command {
  for (const [heading, specs] of Object.entries(options)) {
    for (const [flags, about, { preset, many, hidden } = {}] of specs) {
      const option = new Option(flags, preset ? `${about} (default: ${preset})` : about);
      if (hidden) option.hideHelp();
      if (heading !== '') option.helpGroup(heading);
      const choices = /<(.*\|.*)>/.exec(flags)?.[1];
      if (choices !== undefined) option.choices(choices.split('|'));
      if (many) option.argParser((value: string, before: string[] | undefined) => [...(before ?? []), value]);
      command.addOption(option);
    }
  }
  return command;
}
