import type { KindName } from '../../contract/device-id.js';
import type { HookException } from '../../contract/hook.js';
import type { DeviceProcess, Exit, LedgerReading } from '../../contract/launch.js';
import type { ScriptText } from './in-place.js';

/** What is known of an end beside its log. All of it is optional: a log alone can be judged too. */
export interface Signals {
  exitCode: number | null;
  /** `SIGKILL`, … */
  signal: string | null;
  device: KindName | null;
  ledger: LedgerReading | null;
  hook: HookReport | null;
  /** Memory that grew step by step. */
  growth: { bytesPerStep: number; steps: number } | null;
  /** The variable of the script that grew with it; null: none was seen. */
  keptBy: string | null;
  /** The cgroup's oom_kill rose, or the kernel's log names the job; null: cannot be told. */
  hostOom: boolean | null;
  /** Output that its log had no room for; 0: none, or not known. */
  lostBytes: number;
  endedBy: Exit['ended_by'] | null;
  neighbours: DeviceProcess[];
  /** Of the device; null: unknown. */
  totalBytes: number | null;
  /** The hook saw tensors on the device come out of a Dataset. */
  deviceData: boolean;
  /** The hook saw evaluation run with gradients on; null: it saw none. */
  gradInEval: boolean | null;
  /** Reads the script, where it ran here; null: there is only the log. */
  textOf: ScriptText | null;
}

/** The exception that the hook saw leave the program. */
type HookReport = Omit<HookException, 't' | 'micro_batch'>;

const NUMBERS: Record<string, string> = {
  1: 'SIGHUP',
  2: 'SIGINT',
  3: 'SIGQUIT',
  4: 'SIGILL',
  6: 'SIGABRT',
  7: 'SIGBUS',
  8: 'SIGFPE',
  9: 'SIGKILL',
  11: 'SIGSEGV',
  13: 'SIGPIPE',
  15: 'SIGTERM',
  24: 'SIGXCPU',
};

/** `SIGKILL` from `SIGKILL`, `KILL`, `kill` or `9`; null for nothing. */
function signalName(signal: string | number | null | undefined): string | null {
  if (signal === null || signal === undefined || signal === '') return null;
  const text = String(signal).trim().toUpperCase();
  if (/^-?\d+$/.test(text)) return NUMBERS[text.replace('-', '')] ?? `signal ${text}`;
  return text.startsWith('SIG') ? text : `SIG${text}`;
}

/** The signal that ended the process, told by itself or by the shell's 128 + n (Python's own -n too). */
export function endSignal(signals: Pick<Signals, 'exitCode' | 'signal'>): string | null {
  const named = signalName(signals.signal);
  if (named) return named;
  const code = signals.exitCode;
  if (code === null) return null;
  if (code < 0) return NUMBERS[-code] ?? null;
  // `sys.exit(-9)`, as launchers pass a child's end on, leaves 256 - 9. 255 to 253 are what programs give for any failure.
  if (code > 230 && code < 253) return NUMBERS[256 - code] ?? null;
  return code > 128 && code < 160 ? (NUMBERS[code - 128] ?? null) : null;
}

/** How it ended: `ended by SIGSEGV`, `ended with exit code 7`. */
export function endWords(signals: Pick<Signals, 'exitCode' | 'signal'>): string {
  const signal = endSignal(signals);
  return signal === null ? `ended with exit code ${signals.exitCode}` : `ended by ${signal}`;
}

export function failed(signals: Pick<Signals, 'exitCode' | 'signal'>): boolean | null {
  if (signals.signal) return true;
  return signals.exitCode === null ? null : signals.exitCode !== 0;
}

export type Refusal = LedgerReading['refusals'][number];

/** A refusal by the budget or the driver, on the device that the job uses. */
export function lastRefusal(signals: Signals): Refusal | null {
  return signals.ledger?.refusals.at(-1) ?? null;
}

export function wasRefused(signals: Signals): boolean {
  return (signals.ledger?.refused ?? 0) > 0;
}
