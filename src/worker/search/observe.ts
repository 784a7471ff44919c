import { closeSync, createReadStream } from 'node:fs';
import { openRegular } from '../../common/regular-file.js';
import type { KindName } from '../../contract/device-id.js';
import type { Diagnosis } from '../../contract/diagnosis.js';
import type { Goodbye, Loop, XlaPool } from '../../contract/hook.js';
import type { Exit, LedgerReading } from '../../contract/launch.js';
import { measuredSteps, NO_PEAKS, type Observation, type Probe, peaks } from '../../contract/measurement.js';
import { median } from '../../tuner/contest.js';
import { type DiagnoseInput, diagnose } from '../diagnosis/index.js';
import { isLost, lostDiagnosis } from '../launch/ends.js';
import type { Session } from '../launch/session.js';
import { byHand, uncut, without8bit } from './undriveable.js';
import { growthPerStep, isRestless, type Measurement } from './worst-rank.js';

/** The ledger's highest peak on any device; null: no ledger. */
export function ledgerPeak(reading: LedgerReading | null): number | null {
  const devices = reading?.devices ?? [];
  const peaks = devices.map((device) => device.peak_bytes).filter((bytes) => bytes > 0);
  return peaks.length === 0 ? null : Math.max(...peaks);
}

/** Where a probe ran. */
export interface ProbeRun {
  launch: number;
  /** Its number among all processes of the search. */
  life: number;
  fresh: boolean;
  /** In milliseconds since the epoch. */
  asked: number;
}

/** The probe's part of an observation. */
const tried = (
  { rung, micro_batch, accumulation, expandable_segments, knob }: Probe,
  { launch, life, fresh, asked }: ProbeRun,
) => ({
  ...{ rung, micro_batch, accumulation, launch, life, fresh },
  ...(expandable_segments ? { expandable_segments } : {}),
  ...(knob ? { knob } : {}),
  wall_s: Math.max(0, Date.now() - asked) / 1000,
});

export function observeFit(probe: Probe, ran: ProbeRun, measurement: Measurement, alive: boolean): Observation {
  const { step_s: steps } = measurement;
  return {
    ...tried(probe, ran),
    // If the model's call is cut, the loop's whole batch was measured, perhaps in more parts than asked for.
    accumulation: Math.max(
      probe.accumulation,
      Math.floor(measurement.accumulation / (measurement.own_accumulation ?? 1)),
    ),
    ...measuredSteps.parse(measurement),
    outcome: 'fit',
    ambiguous: false,
    phase: null,
    peaks: peaks.parse(measurement),
    ...(isRestless(probe, measurement) ? { restless: true } : {}),
    rise_bytes_per_step: growthPerStep(probe, measurement),
    // Steps after the first, which pays for allocation and autotuning
    step_s: steps.length === 0 ? null : median(steps.length > 1 ? steps.slice(1) : steps),
    refused_bytes: null,
    evidence: null,
    alive,
  };
}

/** What a launch needed, and the most that it could have had; null: as much as there is. */
interface Need {
  bytes: number | null;
  most: number | null;
}

/** XLA's pool is in the ledger as a whole, however little of it was in use: what lies outside of the pool, and what was needed of it. */
export function needOf(exit: Exit, pool: XlaPool | null): Need {
  const peak = ledgerPeak(exit.ledger);
  if (pool === null || peak === null || peak < pool.pool_bytes) return { bytes: peak, most: null };
  const outside = peak - pool.pool_bytes;
  return { bytes: outside + pool.peak_bytes, most: outside + pool.limit_bytes };
}

/** A launch of one size that succeeded, whose loop the hook did not see. `bytes`: that it needed; null: not known. */
export function observeWhole(probe: Probe, ran: ProbeRun, bytes: number | null): Observation {
  const measurement = {
    micro_batch: probe.micro_batch,
    accumulation: probe.accumulation,
    steps: probe.steps,
    ...NO_PEAKS,
    total_bytes: bytes,
    alloc_retries: 0,
    step_s: [],
  };
  return observeFit(probe, ran, measurement, false);
}

/** A probe whose process died, by the diagnosis. */
export function observeDeath(probe: Probe, ran: ProbeRun, diagnosis: Diagnosis, exit: Exit): Observation {
  const outcome = diagnosis.class === 'ok' ? 'user_error' : diagnosis.class;
  const { reserved_bytes: held, allocated_bytes: used } = diagnosis.fields;
  return {
    ...tried(probe, ran),
    steps: 0,
    outcome,
    ambiguous: outcome === 'device_oom' && (diagnosis.ambiguous ?? false),
    phase: diagnosis.phase,
    peaks: { ...NO_PEAKS, total_bytes: ledgerPeak(exit.ledger) },
    alloc_retries: 0,
    step_s: null,
    refused_bytes: diagnosis.fields.tried_bytes ?? exit.ledger?.refusals.at(-1)?.size_bytes ?? null,
    unallocated_bytes: held === null || used === null ? null : Math.max(0, held - used),
    free_bytes: diagnosis.fields.free_bytes,
    evidence: diagnosis.evidence ?? (exit.ended_by === 'timeout' ? diagnosis.cause : describeExit(exit)),
    alive: false,
  };
}

/** The hook ended the process before it would have trained something else, by the reason that it gave. */
const REFUSALS: Partial<Record<string, (goodbye: Goodbye, loop: Loop | null) => Diagnosis>> = {
  uncut,
  at_model: uncut,
  by_hand: byHand,
  without_8bit: without8bit,
};

/** Why a launch died, by the ledger, the hook, the exit and the log. */
export async function diagnoseSession(
  session: Session,
  exit: Exit,
  device: KindName,
  more: Partial<DiagnoseInput> = {},
): Promise<Diagnosis> {
  if (isLost(exit)) return lostDiagnosis(exit);
  const told = session.goodbye && REFUSALS[session.goodbye.reason];
  if (session.goodbye && told && session.exception === null) return told(session.goodbye, session.loop);
  return diagnose({
    log: openLog(session.logFile, session.logFrom),
    exitCode: exit.code,
    signal: exit.signal,
    device,
    ledger: exit.ledger,
    hook: session.exception,
    hostOom: exit.host_oom,
    lostBytes: exit.lost_bytes,
    endedBy: exit.ended_by,
    deviceData: session.warnings.has('dataset_on_device'),
    gradInEval: session.warnings.has('eval_builds_graph') ? true : null,
    ...more,
  });
}

/** Twice the supervisor's limit; of a longer log the end is read. */
const MOST_LOG_BYTES = 128 * 1024 ** 2;

/** Reads no further than the log's size when opened, as a job may go on writing to it. */
function openLog(path: string, from: number): Iterable<Buffer> | AsyncIterable<Buffer> {
  const file = openRegular(path);
  if (file === null) return [];
  const { fd, size } = file;
  // It may have been truncated since.
  const start = Math.max(from < size ? from : 0, size - MOST_LOG_BYTES);
  if (size > 0) return createReadStream('', { fd, start, end: size - 1 });
  closeSync(fd);
  return [];
}

/** `exit status 3` or `SIGKILL`, for deaths without a word in the log. */
function describeExit(exit: Exit): string {
  if (exit.error !== null) return exit.error;
  if (exit.signal !== null) return `ended by ${exit.signal}`;
  return `exit status ${exit.code}`;
}

/**
 * A fit with its speed. `batches`: of the loop in one optimizer step, as the hook made it; `times`: batches that the loop
 * accumulates by itself; `worldSize`: devices that each train as many samples.
 */
export function withSpeed(
  observation: Observation,
  { batches, times, worldSize }: { batches: number | null; times: number; worldSize: number },
): Observation {
  const asked = observation.accumulation * times;
  const stepSeconds = observation.step_s && (observation.step_s * asked) / (batches ?? asked);
  const samples = observation.micro_batch * asked * worldSize;
  return { ...observation, step_s: stepSeconds, samples_per_s: stepSeconds ? samples / stepSeconds : null };
}

/** The memory that a launch had and asked for when it ran out, which has to be free for it, in bytes. Null: unknown. */
export function neededBytes(exit: Exit, { memory, fields }: Diagnosis): number | null {
  const held = Math.max(ledgerPeak(exit.ledger) ?? 0, memory?.process_bytes ?? 0);
  return held === 0 ? null : held + (fields.tried_bytes ?? 0);
}
