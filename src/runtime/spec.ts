import { type OomtuneError, usageError } from '../common/errors.js';
import { readStat } from '../common/process.js';
import { isDeviceId } from '../contract/device-id.js';
import type { LaunchSpec } from './types.js';

/** A device in the ledger: 0 is the host, 1 + n the job's ordinal n. */
export interface LedgerDevice {
  index: number;
  name: string;
  uuid: string;
}

/** Of one log file; the supervisor keeps two. */
const LOG_BYTES = 64 * 1024 ** 2;

const wrong = (what: string): OomtuneError => usageError(what, 'Correct the command or its options.');

/** The supervisor's file `spec`: records `key=value`, each ended by NUL. native/supervisor/spec.h documents them. */
export function encodeSpec(
  spec: LaunchSpec,
  env: Record<string, string>,
  devices: LedgerDevice[],
  standIn: string | null,
  regions: string[] = [],
): string {
  const records = [
    'version=1',
    `job=${spec.jobId}`,
    `launch=${spec.launch}`,
    `cwd=${spec.cwd}`,
    `grace_ms=${Math.round(spec.graceSeconds * 1000)}`,
    `timeout_ms=${spec.timeoutSeconds === null ? 0 : Math.max(1, Math.round(spec.timeoutSeconds * 1000))}`,
    `log_bytes=${LOG_BYTES}`,
    `output=${spec.output}`,
    ...(spec.input === undefined ? [] : [`input=${spec.input.offset},${spec.input.path}`]),
    ...(spec.tied === true ? [`owner=${process.pid},${readStat(process.pid)?.startTime ?? 0}`] : []),
    ...shellRecords(spec.shell),
    ...(standIn === null ? [] : [`standin=${standIn}`]),
    ...devices.map((d) => `device=${d.index},${spec.budgetBytes ?? '-'},${d.name},${d.uuid}`),
    ...(spec.budgetBytes === null ? [] : regions.map((region) => `dmem=${spec.budgetBytes},${region}`)),
    ...spec.argv.map((argument) => `arg=${argument}`),
    ...Object.entries(env).map(([name, value]) => `env=${name}=${value}`),
  ];
  return records.map((record) => `${record}\0`).join('');
}

function shellRecords(shell: LaunchSpec['shell']): string[] {
  if (shell === undefined) return [];
  const limits = shell.limits.map(({ name, soft, hard }) => `limit=${name},${soft ?? '-'},${hard ?? '-'}`);
  return [`umask=${shell.umask}`, ...limits];
}

/** Throws OOMTUNE_USAGE if no process can be started with it. */
export function checkSpec(spec: LaunchSpec): void {
  if (!spec.argv[0]) throw wrong('Expected a command, got nothing.');
  if (spec.argv.some((argument) => argument.includes('\0'))) throw wrong('An argument holds a NUL byte.');
  for (const [name, value] of Object.entries(spec.env)) {
    if (!name || name.includes('=') || name.includes('\0') || value.includes('\0'))
      throw wrong(`The environment variable ${JSON.stringify(name)} cannot be passed on.`);
  }
  if (!spec.cwd.startsWith('/') || !spec.dir.startsWith('/')) throw wrong('Expected absolute folders.');
  if (spec.budgetBytes !== null && !(Number.isSafeInteger(spec.budgetBytes) && spec.budgetBytes > 0))
    throw wrong(`Expected the budget in whole bytes, got ${spec.budgetBytes}.`);
  if (!(spec.graceSeconds >= 0) || (spec.timeoutSeconds !== null && !(spec.timeoutSeconds > 0)))
    throw wrong('Expected a time-out above zero and a grace of zero or more seconds.');
  const unknown = spec.devices.find((id) => !isDeviceId(id));
  if (unknown !== undefined || spec.devices.length === 0 || new Set(spec.devices).size !== spec.devices.length)
    throw wrong(`Expected devices such as cpu or cuda:0, each once, got ${spec.devices.join(', ') || 'none'}.`);
}
