import { join } from 'node:path';
import type { SlurmPlace } from '../../contract/slurm.js';

/** Files in a job's folder. */
export const LOG = 'log';
export const REPORT = 'report.json';
/** What `oomtune run` tells of it for `explain`, from its first launch on. */
export const RECORD = 'job.json';
/** Its exit code and when it ended; absent: it has not, or was killed. */
export const ENDED = 'ended';
/** Slurm has told it to end in favour of another job. */
export const PREEMPTED = 'preempted';
/** When it was first started. */
export const FIRST = 'first-start';

export interface BatchScript {
  /** Of the submission: the folder of each task is `<folder>/<task>`. */
  folder: string;
  cwd: string;
  /** How oomtune was called; where that is not on the node, the `oomtune` of its PATH. */
  program: string[];
  /** Of `oomtune run`, without the command. */
  words: string[];
  tasks: { task: number; command: string[]; index: number | null }[];
  /** How often it may be started again for want of memory. */
  retries: number;
  /** The only host that reaches the Redis in use; null: all do. */
  redisHost: string | null;
}

export const taskFolder = (folder: string, task: SlurmPlace['task']): string => join(folder, String(task ?? 0));

/** The batch script of one job, or of an array. */
export function batchScript(given: BatchScript): string {
  const cases = given.tasks.map(({ task, command, index }) => {
    const variable = index === null ? '' : ` array=(--env OOMTUNE_ARRAY_INDEX=${index});`;
    return `  ${task})${variable} set -- ${quoted(command)} ;;`;
  });
  const elsewhere =
    given.redisHost === null
      ? []
      : [
          `if [ "$(uname -n)" != ${quote(given.redisHost)} ]; then # its Redis listens there alone: this node has its own`,
          '  unset OOMTUNE_REDIS_URL',
          `  export OOMTUNE_HOME="\${TMPDIR:-/tmp}/oomtune-home-$(id -u)"`,
          'fi',
        ];
  return [
    '#!/bin/bash',
    '# Written by `oomtune submit --via slurm`.',
    `task="\${SLURM_ARRAY_TASK_ID:-0}"`,
    `folder=${quote(given.folder)}/"$task"`,
    `restarts="\${SLURM_RESTART_COUNT:-0}"`,
    // one task of an array has the number of the whole, by which all would be started again
    `job="\${SLURM_ARRAY_JOB_ID:+\${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}"`,
    `job="\${job:-$SLURM_JOB_ID}"`,
    `rm -f "$folder/${REPORT}" "$folder/${RECORD}" "$folder/${ENDED}" "$folder/${PREEMPTED}"`,
    `[ -s "$folder/${FIRST}" ] || date +%s > "$folder/${FIRST}"`,
    `if [ "$restarts" -gt 0 ]; then export OOMTUNE_FIRST_START="$(cat "$folder/${FIRST}")"; fi`,
    'if [ -n "$SLURM_CPUS_PER_TASK" ]; then export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"; fi',
    ...elsewhere,
    `oomtune=(${quoted(given.program)})`,
    `if ! [ -x "\${oomtune[0]}" ] || ! [ -r "\${oomtune[-1]}" ]; then oomtune=(oomtune); fi`,
    'array=()',
    'case "$task" in',
    ...cases,
    '  *) echo "oomtune: this script has no task $task" >&2; exit 70 ;;',
    'esac',
    `cd ${quote(given.cwd)} || exit 5`,
    `OOMTUNE_RECORD="$folder/${RECORD}" srun --ntasks=1 "\${oomtune[@]}" run --requeue --report "$folder/${REPORT}" ${quoted(given.words)} "\${array[@]}" -- "$@"`,
    'code=$?',
    `if [ "$code" -eq 75 ] && [ "$restarts" -lt ${given.retries} ] && scontrol requeue "$job"; then exit 75; fi`,
    '# Slurm starts a preempted job again only if it still runs when its time of grace is over.',
    `if [ "$code" -eq 143 ] && scontrol show job --oneliner "$job" | grep -q ' PreemptTime=[0-9]'; then`,
    `  : > "$folder/${PREEMPTED}"`,
    ...(given.retries > 0 ? ['  scontrol requeue "$job" && exit 143'] : []),
    'fi',
    `printf '%s %s\\n' "$code" "$(date +%s)" > "$folder/${ENDED}.new" && mv "$folder/${ENDED}.new" "$folder/${ENDED}"`,
    'exit "$code"',
    '',
  ].join('\n');
}

const quoted = (words: string[]): string => words.map(quote).join(' ');

/** For a shell, whatever stands in it. */
const quote = (word: string): string =>
  /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
