/** The runtime's words: devices, launches, what the ledger saw. Sizes in bytes, times in seconds or ISO 8601. */

export interface DeviceProcess {
  pid: number;
  name: string;
  used_bytes: number;
  /** Launched by the oomtune of this home: another user's, or one with other state, has a Redis of its own. */
  ours: boolean;
  /** The job that it belongs to, of whatever home; null: none, or that cannot be told. */
  job: string | null;
}

/**
 * Which limit of the driver's or the kernel's own holds a job to its budget, beside oomtune's: the kernel's `dmem` controller,
 * `mps` (each process by itself), `mig` (no budget, but the size of this part of a GPU), or none.
 */
export type FirstPartyLimit = 'dmem' | 'mps' | 'mig' | 'none';

export interface Device {
  /** `cuda:N` or `cpu`. */
  id: string;
  /** NVML's uuid; `cpu:<machine id>` for the host. */
  uuid: string;
  model: string;
  total_bytes: number;
  used_bytes: number;
  processes: DeviceProcess[];
  /** Why the figures are less than whole (no per-process figures in a container, …) or the device is broken; null: nothing. */
  note: string | null;
  fault: string | null;
  driver: string | null;
  /** PCI bus id as the kernel writes it; null for the host. */
  bus: string | null;
  /** What the driver tells of memory here: what each `process` holds, or (as in a container) only the whole `device`. */
  figures: 'process' | 'device';
  first_party_limit: FirstPartyLimit;
}

/** What the supervisor is asked to start. Everything stands in `dir`, which only this user can enter. */
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
  /** The run ends with this process, however that ends: it is owed to whoever waits for it here. */
  tied?: boolean;
  /** Asked while the job is being started, which may take long: true, it is not to start any more. */
  givenUp?: () => boolean;
  /** Where the job's output goes besides the log file. `inherit`: also to this process's stdout and stderr. */
  output: 'log' | 'inherit';
}

export interface Refusal {
  pid: number;
  /** `posix_memalign`, `cuMemAlloc_v2`, … */
  api: string;
  size_bytes: number;
  live_bytes: number;
  budget_bytes: number;
  /** `budget` or `driver`: who refused. */
  by: 'budget' | 'driver';
  device: string;
  /** ISO 8601. */
  at: string;
}

export interface LedgerReading {
  devices: {
    device: string;
    live_bytes: number;
    peak_bytes: number;
    overhead_bytes: number;
    budget_bytes: number | null;
    /** Whose figures told the overhead: each `process`'s, or the whole `device`'s; null: nothing was measured. */
    measured_by: 'process' | 'device' | null;
  }[];
  /** Total number of refused calls; `refusals` holds the latest. */
  refused: number;
  refusals: Refusal[];
  /** Memory was seen that the hooks did not count. */
  blind: boolean;
}

/** The supervisor's record of how a launch ended (exit.json), with the ledger's last reading. */
export interface Exit {
  /** Exit status of the job; null if a signal ended it. */
  code: number | null;
  /** `SIGKILL`, …; null if it exited. */
  signal: string | null;
  /** Why the supervisor ended it, if it did. */
  ended_by: 'job' | 'timeout' | 'cancel' | 'start-failed' | 'supervisor-lost';
  /** errno text when the command could not be started. */
  error: string | null;
  /** The cgroup's oom_kill counter rose, or the kernel log names the job; null: cannot be told here. */
  host_oom: boolean | null;
  started_at: string;
  ended_at: string;
  /** Descendants that had to be reaped or killed after the main process ended. */
  stragglers: number;
  /** The most that any one process of the job had in memory; absent: not known. */
  resident_bytes?: number | undefined;
  ledger: LedgerReading | null;
  /** Processes that were killed and are still there, as the kernel holds on to them: `error` names them. Absent: nothing is left. */
  held?: number[];
}

/** A launch that is under way (or ended): the daemon may die, the supervisor does not. */
export interface Run {
  readonly dir: string;
  readonly supervisorPid: number;
  readonly logFile: string;
  /** The ledger now; null when nothing was loaded into the job. */
  ledger(): LedgerReading | null;
  /**
   * Resolves when exit.json is there and no process of the tree is left, or else when one has been dying for as long as
   * OOMTUNE_END_SECONDS says: the exit's `held` tells. Never rejects for the job's own failure.
   */
  wait(): Promise<Exit>;
  /**
   * TERM to the tree, KILL after the grace. `reason` goes into exit.json. Idempotent. A supervisor that does not answer (stopped by
   * its own job, say) is killed some seconds after that, and what is left of the job with it.
   */
  end(reason: 'cancel' | 'timeout'): void;
}

/** The face that workers see; `createRuntime()` in runtime/index.ts makes it. Tests may pass a stand-in. */
export interface Runtime {
  devices(): Promise<Device[]>;
  /** Throws OomtuneError (OOMTUNE_COMMAND_MISSING, OOMTUNE_HOME_UNUSABLE, OOMTUNE_NATIVE_MISSING); nothing is left behind then. */
  launch(spec: LaunchSpec): Promise<Run>;
  /** The run in `dir` if its supervisor lives (pid and start time) or its exit.json is there; null if it never started. */
  adopt(dir: string): Promise<Run | null>;
  versions(): { addon: string; supervisor: string; driver: string | null };
}
