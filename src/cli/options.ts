import type { Command } from 'commander';
import { Option } from 'commander';
import { DEVICE_CHOICES } from '../devices/index.js';

/**
 * The options as the user sees them: find-batch, run and submit share one table. commander knows only names and values;
 * what the values mean is checked in job-options.ts, which is loaded when a verb needs it.
 */

interface Spec {
  flags: string;
  about: string;
  group: string;
  choices?: string[];
  /** Shown in the help; the value itself is filled in by job-options.ts. */
  preset?: string;
  many?: boolean;
}

const WHERE = 'Where it runs:';
const BATCH = 'Batch and knobs:';
const SEARCH = 'How the search goes:';
const COMMAND = "The command's surroundings:";
const QUEUE = 'In the queue:';

const WORK: Spec[] = [
  {
    flags: '--name <name>',
    about: 'name of the job and of its recommendation',
    group: COMMAND,
    preset: 'from the script',
  },
  { flags: '--device <device>', about: DEVICE_CHOICES, group: WHERE, preset: 'the first GPU, else cpu' },
  { flags: '--budget <size>', about: 'all bytes it may hold on one device: 24GiB, 800MiB, 80%', group: WHERE },
  { flags: '--gpus <n>', about: 'number of GPUs', group: WHERE, preset: '1' },
  { flags: '--exclusive', about: 'no other job on its devices meanwhile, whatever its budget', group: WHERE },
  { flags: '--effective-batch <n>', about: 'samples per optimizer step over all GPUs, kept exactly', group: BATCH },
  { flags: '--min-batch <n>', about: 'smallest micro-batch to accept', group: BATCH, preset: '1' },
  { flags: '--max-batch <n>', about: 'largest micro-batch to try', group: BATCH },
  {
    flags: '--amp <auto|off|bf16|fp16>',
    about: 'mixed precision; anything but auto fixes it',
    group: BATCH,
    choices: ['auto', 'off', 'bf16', 'fp16'],
    preset: 'auto',
  },
  {
    flags: '--checkpointing <auto|off|on>',
    about: 'activation checkpointing; anything but auto fixes it',
    group: BATCH,
    choices: ['auto', 'off', 'on'],
    preset: 'auto',
  },
  {
    flags: '--accumulation <auto|off>',
    about: 'gradient accumulation; off forbids it',
    group: BATCH,
    choices: ['auto', 'off'],
    preset: 'auto',
  },
  {
    flags: '--cut <auto|model|loader>',
    about: "where a batch is cut into micro-batches: at the model's call, or at the DataLoader",
    group: BATCH,
    choices: ['auto', 'model', 'loader'],
    preset: 'auto: at the model, but by the framework where it accumulates by itself',
  },
  { flags: '--exact', about: 'nothing that changes the numerics: amp off', group: BATCH },
  {
    flags: '--objective <max-batch|throughput>',
    about: 'the largest batch on the first rung that fits, or the fastest of all rungs',
    group: SEARCH,
    choices: ['max-batch', 'throughput'],
    preset: 'max-batch',
  },
  {
    flags: '--headroom <pct>',
    about: 'part of the budget that the recommendation leaves free, in per cent',
    group: SEARCH,
    preset: '3',
  },
  { flags: '--preset <preset>', about: 'NAME, auto or none (none: no hook either)', group: SEARCH, preset: 'auto' },
  { flags: '--steps <n>', about: 'optimizer steps of a probe, at least 2', group: SEARCH, preset: '3' },
  { flags: '--timeout <seconds>', about: 'longest that one launch may take', group: SEARCH },
  { flags: '--no-fork', about: 'start the command anew for each fresh process of the search', group: SEARCH },
  { flags: '--max-launches <n>', about: 'most starts of the command that the search may use', group: SEARCH },
  {
    flags: '--env <name[=value]>',
    about: 'give the job this variable (repeatable)',
    group: COMMAND,
    many: true,
  },
  { flags: '--env-file <file>', about: 'give the job the variables in this file, read at launch', group: COMMAND },
  { flags: '--cwd <dir>', about: 'folder to run in', group: COMMAND, preset: 'here' },
];

const FIND_BATCH: Spec[] = [
  { flags: '--plot <file>', about: 'draw what fills the memory into this file, as SVG', group: SEARCH },
];

const TIME: Spec = {
  flags: '--time <time>',
  about: 'end it after so long, searches included: 4h, 1h30m, 2:30:00',
  group: WHERE,
};

const RUN: Spec[] = [TIME];

const PRIORITY: Spec[] = [
  { flags: '--priority <n>', about: 'higher goes first', group: QUEUE, preset: '0' },
  { flags: '--nice <n>', about: 'lower goes first: --nice 5 is --priority -5', group: QUEUE },
];

const EDIT: Spec[] = [
  ...PRIORITY.map(({ preset: _, ...spec }) => spec),
  { ...TIME, about: 'end it after so long, from its start on; none: as long as it takes', group: QUEUE },
];

const SUBMIT: Spec[] = [
  {
    flags: '--array <indices>',
    about: 'a job for each index, as {index} and OOMTUNE_ARRAY_INDEX: 0-59, or 0-59%4 for 4 at a time',
    group: QUEUE,
  },
  {
    flags: '--sweep <name=values>',
    about: 'a job for each value of {name} in the command: lr=1e-3,1e-4 or seed=0..4 (repeatable: every combination)',
    group: QUEUE,
    many: true,
  },
  ...PRIORITY,
  { ...TIME, group: QUEUE, about: `${TIME.about}; what ends in time may go before a job that waits for more devices` },
  { flags: '--after <job>', about: 'start only when this job has succeeded (repeatable)', group: QUEUE, many: true },
  {
    flags: '--after-any <job>',
    about: 'start when this job has ended, however (repeatable)',
    group: QUEUE,
    many: true,
  },
  {
    flags: '--share',
    about: 'may share a device with other jobs: reserves its recorded peak where no budget is given',
    group: QUEUE,
  },
  { flags: '--gpu-model <model>', about: 'only on GPUs whose model holds this text', group: QUEUE },
  { flags: '--host <host>', about: 'only on this host', group: QUEUE },
  { flags: '--resume-arg <arg>', about: 'added to the command when it is relaunched after progress', group: QUEUE },
  {
    flags: '--retries <n>',
    about: 'relaunches after a late out-of-memory error, or when the run was lost (a reboot)',
    group: QUEUE,
    preset: '2',
  },
];

/** Adds `--json` and `--redis`, which every verb takes. */
export function addCommonOptions(command: Command): Command {
  return command
    .addOption(new Option('--json', 'one JSON document on stdout, nothing else'))
    .addOption(
      new Option('--redis <url>', 'redis://, rediss:// or unix:// (default: OOMTUNE_REDIS_URL, else its own Redis)'),
    );
}

export function addWorkOptions(command: Command): Command {
  return addSpecs(command, WORK);
}

export function addFindBatchOptions(command: Command): Command {
  return addSpecs(command, FIND_BATCH);
}

export function addRunOptions(command: Command): Command {
  return addSpecs(command, RUN);
}

export function addEditOptions(command: Command): Command {
  return addSpecs(command, EDIT);
}

export function addSubmitOptions(command: Command): Command {
  return addSpecs(command, SUBMIT);
}

function addSpecs(command: Command, specs: Spec[]): Command {
  for (const spec of specs) {
    const option = new Option(spec.flags, spec.preset ? `${spec.about} (default: ${spec.preset})` : spec.about);
    option.helpGroup(spec.group);
    if (spec.choices) option.choices(spec.choices);
    if (spec.many) option.argParser((value: string, before: string[] | undefined) => [...(before ?? []), value]);
    command.addOption(option);
  }
  return command;
}
