import { execFile } from 'node:child_process';
import { readFileSync, statfsSync, statSync } from 'node:fs';
import { promisify } from 'node:util';
import { findExecutable } from '../../common/executable.js';
import { homeFolder } from '../../common/home.js';
import { formatBytes } from '../../common/size.js';
import { HOST, isHost, kindNameOf } from '../../contract/device-id.js';
import type { FirstPartyLimit } from '../../contract/launch.js';
import type { Finding } from '../../contract/verbs.js';
import { KINDS } from '../../devices/index.js';
import type { Driver } from '../../devices/kind.js';
import { bugReport, bugReportText } from '../bug-report.js';
import type { Context } from '../context.js';
import { asOomtuneError } from '../errors.js';
import type { Verb } from '../verb.js';
import { plural } from '../words.js';
import { versions } from './version.js';

const MARKS = { ok: ['green', '✓'], warning: ['yellow', '!'], failed: ['red', '✗'] } as const;

export default (async ({ options }, context) => {
  const { out } = context;
  const findings = await examine(context);
  if (options.report === true) return report(findings, context);
  const broken = findings.filter((finding) => finding.status === 'failed');
  if (out.json) out.document('doctor', { schema: 1, ok: broken.length === 0, checks: findings });
  else {
    const widest = Math.max(...findings.map((finding) => finding.check.length));
    for (const { check, status, found, remedy } of findings) {
      const [colour, mark] = MARKS[status];
      out.data(`${out.paint(colour, mark)} ${check.padEnd(widest)}  ${found}`);
      if (remedy !== null) out.data(`  ${' '.repeat(widest)}  ${out.paint('dim', '→')} ${remedy}`);
    }
    out.note(
      broken.length === 0 ? 'Everything needed is there.' : `${broken.length} of ${findings.length} checks failed.`,
    );
  }
  return broken.length === 0 ? 0 : 5;
}) satisfies Verb;

/** A report is made of a broken machine, too: what it finds is no failure of its own. */
async function report(findings: Finding[], context: Context): Promise<number> {
  const devices = await context.runtime().then(
    (runtime) => runtime.devices(),
    () => [], // the checks say that it is not there
  );
  const made = bugReport({ versions: await versions(context), findings, devices });
  if (context.out.json) context.out.document('doctor-report', made);
  else context.out.data(bugReportText(made));
  return 0;
}

const run = promisify(execFile);
const MIB = 1024 ** 2;
const GIB = 1024 ** 3;

type Tell = (check: string, found: string, remedy: string) => Finding;

const ok = (check: string, found: string): Finding => ({ check, status: 'ok', found, remedy: null });
const warning: Tell = (check, found, remedy) => ({ check, status: 'warning', found, remedy });
const failed: Tell = (check, found, remedy) => ({ check, status: 'failed', found, remedy });

type Check = (context: Context) => Promise<Finding[]>;

/** In order of display. */
const CHECKS: [name: string, check: Check][] = [
  ['node', node],
  ['native', native],
  ['redis-server', redisServer],
  ['redis', redis],
  ['python', python],
  ['home', home],
  ['limits', limits],
  ['user', user],
  ['daemon', daemon],
  ['hosts', hosts],
  ['records', records],
];
/** Not for users of the machine's daemon, whose Redis is its own affair. */
const OF_ONES_OWN = new Set(['redis-server', 'redis']);
/** What only a daemon that answers can tell. */
const BY_ANSWER = new Set(['home', 'hosts', 'records']);

async function checksFor(context: Context): Promise<typeof CHECKS> {
  try {
    if ((await context.system()) === null) return CHECKS;
    return CHECKS.filter(([name]) => !OF_ONES_OWN.has(name));
  } catch {
    return CHECKS.filter(([name]) => !OF_ONES_OWN.has(name) && !BY_ANSWER.has(name)); // `daemon` says why it does not
  }
}

async function examine(context: Context): Promise<Finding[]> {
  const findings: Finding[] = [];
  for (const [name, check] of await checksFor(context)) {
    context.signal.throwIfAborted();
    findings.push(...(await check(context).catch((thrown: unknown) => [ofError(name, thrown)])));
  }
  return findings;
}

function ofError(check: string, thrown: unknown): Finding {
  const { message, remedy } = asOomtuneError(thrown, null);
  return failed(check, message, remedy);
}

async function node(): Promise<Finding[]> {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  const found = `Node ${process.versions.node}`;
  if (major < 20 || (major === 20 && minor < 17)) return [failed('node', found, 'Install Node 24 or 26.')];
  return [ok('node', major < 24 ? `${found} (24 or 26 is recommended)` : found)];
}

async function native(context: Context): Promise<Finding[]> {
  const runtime = await context.runtime();
  const { addon, supervisor } = runtime.versions();
  const findings = [ok('native', `addon ${addon}, supervisor ${supervisor}`)];
  const devices = await runtime.devices();
  for (const kind of Object.values(KINDS)) {
    const count = devices.filter((device) => kindNameOf(device.id) === kind.name).length;
    if (kind.driver !== null) findings.push(ofDriver(kind.driver, plural(count, kind.noun), count));
  }
  for (const device of devices) {
    const tool = KINDS[kindNameOf(device.id) ?? HOST].driver?.tool;
    const remedy = `Check the device${tool ? ` with ${tool}` : ''}; it may need a reset by its owner.`;
    if (device.fault !== null) findings.push(failed(device.id, device.fault, remedy));
    else if (device.note !== null) findings.push(ok(device.id, `${device.model}: ${device.note}`));
    if (!isHost(device.id)) findings.push(ok(`${device.id} limit`, LIMITS[device.first_party_limit]));
  }
  return findings;
}

function ofDriver({ name, tool, version }: Driver, devices: string, count: number): Finding {
  const found = version();
  if (found === null) return ok('driver', `no ${name}: jobs run with --device ${HOST}`);
  if (count > 0) return ok('driver', `${name} ${found}, ${devices}`);
  return warning('driver', `${name} ${found}, but no GPU`, `Check ${tool}, and the container's --gpus.`);
}

/** What limits jobs to their budgets on a device. */
const LIMITS: Record<FirstPartyLimit, string> = {
  none: "budgets are held by oomtune's hooks; the driver offers no limit of its own here (MPS does not run, no dmem region)",
  mig: "budgets are held by oomtune's hooks, the size of this part of the GPU by the driver (MIG)",
  mps: "budgets are held by oomtune's hooks, and for each process by MPS, which runs here",
  dmem: "budgets are held by oomtune's hooks, and by the kernel's dmem controller",
};

async function redisServer(context: Context): Promise<Finding[]> {
  const path = findExecutable('redis-server', process.env);
  if (path === null) {
    const remedy = 'apt-get install redis-server, or name a server with --redis.';
    if (context.redisUrl !== null) return [ok('redis-server', 'not installed, and not needed: a URL is given')];
    return [failed('redis-server', 'not installed', remedy)];
  }
  const version = /v=([\d.]+)/.exec((await run(path, ['--version'])).stdout)?.[1] ?? 'unknown';
  const [major = 0, minor = 0] = version.split('.').map(Number);
  if (major < 6 || (major === 6 && minor < 2))
    return [failed('redis-server', `${path} ${version}`, 'Redis 6.2 or newer is needed.')];
  return [ok('redis-server', `${path} ${version}`)];
}

async function redis(context: Context): Promise<Finding[]> {
  const store = await context.store();
  const findings = [ok('redis', `answers at ${store.url}`)];
  await store.checkSafe({ allowInsecure: false }).catch((error) => findings.push(ofError('redis', error)));
  await store.checkWrites().catch((error) => findings.push(ofError('redis', error)));
  return findings;
}

async function python(): Promise<Finding[]> {
  const { firstWithTorch } = await import('../../worker/index.js');
  const places = ['python3', 'python', '/usr/bin/python3', '/usr/local/bin/python3'];
  const environment = Object.fromEntries(
    Object.entries(process.env).filter((entry): entry is [string, string] => entry[1] !== undefined),
  );
  const asked = process.env.OOMTUNE_PYTHON ? [process.env.OOMTUNE_PYTHON, ...places] : places;
  const found = await firstWithTorch(asked, process.cwd(), environment);
  if (found === null) {
    const remedy = 'Install torch (apt-get install python3-torch), or name its interpreter in your commands.';
    return [failed('torch', 'no interpreter with torch was found', remedy)];
  }
  const path = found.path.includes('/') ? found.path : (findExecutable(found.path, process.env) ?? found.path);
  const findings = [ok('torch', `${path} has torch ${found.torch}`)];
  if (found.path !== 'python3') {
    const plain = findExecutable('python3', process.env);
    if (plain !== null && plain !== path) {
      findings.push(warning('python3', `${plain}, the first on PATH, has no torch`, `Name ${path} in your commands.`));
    }
  }
  return findings;
}

async function home(): Promise<Finding[]> {
  const path = homeFolder();
  const { mode, uid } = statSync(path);
  const findings: Finding[] = [];
  if ((mode & 0o077) !== 0) findings.push(failed('home', `${path} can be entered by others`, `chmod 700 ${path}`));
  else if (uid !== process.getuid?.())
    findings.push(failed('home', `${path} belongs to another user`, 'Set OOMTUNE_HOME.'));
  else findings.push(ok('home', path));
  const { bavail, bsize } = statfsSync(path);
  const free = bavail * bsize;
  findings.push(
    free < 256 * MIB
      ? failed('disk', `${formatBytes(free)} free at ${path}`, 'Make room: logs and the database stand there.')
      : free < 2 * GIB
        ? warning('disk', `${formatBytes(free)} free at ${path}`, 'Logs and the database stand there.')
        : ok('disk', `${formatBytes(free)} free at ${path}`),
  );
  return findings;
}

async function limits(): Promise<Finding[]> {
  const findings: Finding[] = [];
  const files = Number(/Max open files\s+(\d+)/.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1] ?? Number.NaN);
  if (files < 1024) findings.push(warning('open files', `limit ${files}`, 'ulimit -n 4096'));
  else if (Number.isFinite(files)) findings.push(ok('open files', `limit ${files}`));
  try {
    const { blocks, bsize } = statfsSync('/dev/shm');
    const size = blocks * bsize;
    const found = `${formatBytes(size)} in /dev/shm`;
    // Docker's default of 64 MiB is too small for a data loader's workers
    if (size < 512 * MIB) {
      const remedy = 'Data-loader workers share batches there: start the container with --shm-size or --ipc=host.';
      findings.push(warning('shared memory', found, remedy));
    } else findings.push(ok('shared memory', found));
  } catch {
    findings.push(warning('shared memory', 'there is no /dev/shm', 'Data-loader workers need it.'));
  }
  return findings;
}

async function user(): Promise<Finding[]> {
  if (process.getuid?.() !== 0) return [];
  return [ok('user', 'root: jobs run as root too (usual in a container)')];
}

async function daemon(context: Context): Promise<Finding[]> {
  const system = await context.system();
  if (system !== null) {
    const { pid, host, version, user, admin, lacks } = system;
    const who = `serves ${user}${admin ? ', an administrator' : ''}`;
    const found = `of the machine at ${(await context.store()).url}, version ${version}, pid ${pid} on ${host}: ${who}`;
    return [
      ok('daemon', found),
      ...(lacks === null
        ? []
        : [warning('daemon', `it takes no jobs: it lacks ${lacks}`, 'Make room, or tell an administrator.')]),
    ];
  }
  const { daemonStatus } = await import('../../daemon/index.js');
  const status = await daemonStatus(await context.store());
  if (!status.running) return [ok('daemon', 'not running; submitted jobs wait until `oomtune daemon start`')];
  return [ok('daemon', `runs, pid ${status.pid} on ${status.host}`)];
}

/** Silent hosts that still have jobs or leases. */
async function hosts(context: Context): Promise<Finding[]> {
  const store = await context.store();
  const [known, live, leases] = await Promise.all([store.hosts.list(), store.jobs.live(), store.leasing.list()]);
  return known.flatMap(({ host, seen, alive }) => {
    const jobs = live.filter((job) => job.claimHost === host).length;
    const leased = leases.filter((lease) => lease.host === host).length;
    if (alive || jobs + leased === 0) return [];
    const found = `not heard since ${new Date(seen).toISOString()}, with ${plural(jobs, 'job')} and ${plural(leased, 'lease')}`;
    const remedy = `Start its daemon; if it is down for good, \`oomtune daemon forget ${host}\`.`;
    return [warning(`host ${host}`, found, remedy)];
  });
}

async function records(context: Context): Promise<Finding[]> {
  const unreadable = await (await context.store()).jobs.unreadable();
  return unreadable.slice(0, 20).map(({ job, why, newer }) => {
    const remedy = newer ? 'Use the version that wrote it.' : 'Mend or delete its key in Redis.';
    return warning(`record of ${job}`, `cannot be read, and is left alone: ${why}`, remedy);
  });
}
