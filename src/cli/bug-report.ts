import { hostname, release, totalmem, userInfo } from 'node:os';
import { homePath, PACKAGE_ROOT } from '../common/home.js';
import { formatBytes } from '../common/size.js';
import type { Device } from '../contract/launch.js';
import type { BugReport, Finding } from '../contract/verbs.js';
import { plural } from './words.js';

/** Checks whose words speak of the machine alone. Of the others, which name users, hosts, jobs and servers, only the status is told. */
const OF_THE_MACHINE = new Set([
  'node',
  'native',
  'driver',
  'redis-server',
  'torch',
  'python3',
  'disk',
  'open files',
  'shared memory',
]);
/** Variables that change what oomtune, torch or a launcher does. Their names are told, and never what they hold. */
const TELLING = /^(OOMTUNE|CUDA|NVIDIA|PYTORCH|TORCH|NCCL|SLURM|KUBERNETES|VIRTUAL_ENV|CONDA|LD)(_|$)/;
/** Shorter ones are words of any text. */
const SHORTEST_SECRET = 4;

/** `linux x64, glibc 2.36`: what a prebuilt part has to fit. */
export function platform(): string {
  const { header } = process.report.getReport() as unknown as { header: { glibcVersionRuntime?: string } };
  const libc = header.glibcVersionRuntime === undefined ? 'another libc' : `glibc ${header.glibcVersionRuntime}`;
  return `${process.platform} ${process.arch}, ${libc}`;
}

interface Parts {
  versions: BugReport['versions'];
  findings: Finding[];
  devices: Device[];
}

/** What helps to find a fault, and nothing that tells whose machine it is or what it is used for. */
export function bugReport({ versions, findings, devices }: Parts, env: NodeJS.ProcessEnv = process.env): BugReport {
  const hide = hider(env);
  return {
    schema: 1,
    versions,
    system: {
      platform: platform(),
      kernel: /^[\d.]+/.exec(release())?.[0] ?? 'unknown',
      memory_bytes: totalmem(),
      devices: devices.map(({ id, model, total_bytes }) => ({ id, model: hide(model), total_bytes })),
    },
    checks: findings.map(({ check, status, found }) => ({
      check:
        OF_THE_MACHINE.has(check) || devices.some(({ id }) => check.startsWith(id))
          ? check
          : (check.split(' ')[0] as string),
      status,
      found: OF_THE_MACHINE.has(check) ? hide(found) : null,
    })),
    variables: Object.keys(env)
      .filter((name) => TELLING.test(name) && /^[A-Z_]+$/.test(name))
      .sort(),
  };
}

/** Stands for a name until all are found: paths are told from the rest only then. */
const HIDDEN = '\u0000';
// biome-ignore lint/suspicious/noControlCharactersInRegex: the mark above
const PATH = /(?:\u0000|~|\.{1,2})?\/[^\s,;:()]*/g;
// biome-ignore lint/suspicious/noControlCharactersInRegex: the mark above, with what was part of the same word
const NAME = /[\w.-]*\u0000[\w.\u0000-]*/g;

/** Hides paths, addresses, names of the user and the host, and all that the environment holds. */
function hider(env: NodeJS.ProcessEnv): (text: string) => string {
  const held = Object.values(env).flatMap((value = '') => [
    value,
    ...value.replace(/\w+:\/\//g, '').split(/[:;,=@\s]+/),
  ]);
  const names = [homePath(), PACKAGE_ROOT, process.cwd(), hostname(), account(), ...held]
    .filter((name) => name.length >= SHORTEST_SECRET && !/^\d+(\.\d+)*$/.test(name))
    .sort((one, other) => other.length - one.length);
  return (text) => {
    const plain = text.replaceAll(HIDDEN, '').replace(/\b[a-z+]+:\/\/\S+/g, '(address)');
    const unnamed = names.reduce((left, name) => left.replaceAll(name, HIDDEN), plain);
    return unnamed.replace(PATH, '(path)').replace(NAME, '(hidden)');
  };
}

function account(): string {
  try {
    return userInfo().username;
  } catch {
    return ''; // a user without an entry in /etc/passwd has no name to hide
  }
}

/** The report as text that can be pasted into an issue. */
export function bugReportText({ versions, system, checks, variables }: BugReport): string {
  const { platform, kernel, memory_bytes, devices } = system;
  const lines = [
    ...Object.entries(versions).map(([name, value]) => [name, value ?? 'none']),
    ['platform', platform],
    ['kernel', kernel],
    ['memory', formatBytes(memory_bytes)],
    ...devices.map(({ id, model, total_bytes }) => [id, `${model}, ${formatBytes(total_bytes)}`]),
    ...checks.map(({ check, status, found }) => [check, found === null ? status : `${status}: ${found}`]),
    ['variables', variables.length === 0 ? 'none' : variables.join(' ')],
  ] as [string, string][];
  const widest = Math.max(...lines.map(([name]) => name.length));
  const told = lines.map(([name, value]) => `${name.padEnd(widest)}  ${value}`);
  return [
    '```',
    ...told,
    '```',
    '',
    `What I ran, and what I expected (${plural(checks.length, 'check')} above):`,
    '',
  ].join('\n');
}
