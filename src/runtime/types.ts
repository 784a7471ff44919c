import type { Device, Exit, LedgerReading } from '../contract/launch.js';
import type { Shell } from '../contract/shell.js';

/** A file, and the byte of it at which a reader begins. */
export interface InputFile {
  path: string;
  offset: number;
}

/** What the supervisor starts. Everything is in `dir`, which only this user can enter. */
export interface LaunchSpec {
  /** Shown in `ps` and in the job's OOMTUNE_JOB_ID. */
  jobId: string;
  /** 1-based. */
  launch: number;
  argv: string[];
  cwd: string;
  /** The whole environment of the job: nothing is inherited. */
  env: Record<string, string>;
  /** Launch folder; made if missing (0700). Holds spec, log, ledger, exit.json, supervisor.json, hook.sock. */
  dir: string;
  /** `cpu`, `cuda:N`, or several for `--gpus N`. */
  devices: string[];
  /** Per device; null: no limit, only telemetry. */
  budgetBytes: number | null;
  timeoutSeconds: number | null;
  /** Between TERM and KILL. */
  graceSeconds: number;
  /** The run ends with this process, whatever ends that. */
  tied?: boolean;
  /** Polled during a start, which may take long; true: do not start any more. */
  givenUp?: () => boolean;
  /** Besides the log file. `inherit`: also this process's stdout and stderr. */
  output: 'log' | 'inherit';
  /** What it reads on its stdin. Absent: with `inherit` this process's stdin, unless that is a terminal; else nothing. */
  input?: InputFile;
  /** Absent: umask and limits of this process. */
  shell?: Shell;
}

/** Signals that mean something to a job itself: Ctrl-C, and what a cluster warns with before it ends a job. */
export type JobSignal = 'SIGINT' | 'SIGUSR1' | 'SIGUSR2';

/** A launch, running or ended: it outlives the daemon. */
export interface Run {
  readonly dir: string;
  readonly supervisorPid: number;
  readonly logFile: string;
  /** Null: none of our libraries was loaded into the job. */
  ledger(): LedgerReading | null;
  /** Resolves when no process is left, or some are stuck (the exit's `stuck`). Never rejects for the job's own failure. */
  wait(): Promise<Exit>;
  /** How its main process has ended, while others are left; null: it has not, or nothing is left. */
  mainExit(): Omit<Exit, 'ledger'> | null;
  /** To its main process; SIGINT to its process group, as Ctrl-C at a terminal. */
  signal(name: JobSignal): void;
  /** TERM to the tree, KILL after the grace; `reason` goes into exit.json. Idempotent. Kills a supervisor that does not answer. */
  end(reason: 'cancel' | 'timeout'): void;
}

/** The workers' view; runtime/index.ts implements it. Tests may pass a stand-in. */
export interface Runtime {
  devices(): Promise<Device[]>;
  /** Throws OOMTUNE_COMMAND_MISSING, OOMTUNE_HOME_UNUSABLE or OOMTUNE_NATIVE_MISSING, and then leaves nothing behind. */
  launch(spec: LaunchSpec): Promise<Run>;
  /** The run in `dir` if its supervisor lives or its exit.json is there; null: it never started. */
  adopt(dir: string): Promise<Run | null>;
  versions(): { addon: string; supervisor: string; driver: string | null };
}
