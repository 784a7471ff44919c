import { join, resolve } from 'node:path';
import { usageError } from '../../common/errors.js';
import { systemSocket, useHome } from '../../common/home.js';
import type { StartOptions, SystemSettings } from '../../daemon/index.js';
import { toLabels } from '../job-options.js';
import { printStatus, sayStarted } from '../running.js';
import { refuseBesideSystem } from '../system/client.js';
import { readNumber, type Verb } from '../verb.js';
import { plural } from '../words.js';

export const start: Verb = async ({ options }, context) => {
  const { out } = context;
  const settings = settingsOf(options);
  refuseBesideSystem(context.redisUrl, 'start');
  const store = await context.store();
  const { startDaemon } = await import('../../daemon/index.js');
  const status = await startDaemon(store, settings);
  if (out.json) out.document('daemon-start', { schema: 1, ...status });
  else sayStarted(out, status);
  return 0;
};

export const stop: Verb = async ({ options }, context) => {
  const { out } = context;
  const { ownDaemonRuns, stopDaemon } = await import('../../daemon/index.js');
  if (!ownDaemonRuns()) refuseBesideSystem(context.redisUrl, 'stop'); // one may be from before there was one for all
  const stopped = await stopDaemon(() => context.store(), { kill: Boolean(options.kill) });
  if (out.json) out.document('daemon-stop', { schema: 1, stopped });
  else out.note(stopped ? 'stopped' : 'it was not running');
  return 0;
};

export const forget: Verb = async ({ args }, context) => {
  const { out } = context;
  const store = await context.store();
  const { forgetHost } = await import('../../daemon/index.js');
  const { host, queued, ended, leases } = await forgetHost(store, args[0] ?? '');
  if (out.json) out.document('daemon-forget', { schema: 1, host, queued, ended, leases });
  else {
    out.note(`${host} is forgotten; ${plural(leases.length, 'lease')} freed`);
    for (const job of queued) out.note(`${job}  queued anew`);
    for (const job of ended) out.note(`${job}  ended: no retry was left, or it was to be cancelled`);
  }
  return 0;
};

export const status: Verb = async (_invocation, context) => {
  const system = await context.system();
  if (system !== null) {
    const { url } = await context.store();
    const { version, pid, host, started_at, jobs, lacks } = system;
    const none = { dashboard: null, dashboard_fault: null };
    const found = {
      schema: 1 as const,
      running: true,
      pid,
      host,
      version,
      redis: url,
      started_at,
      ...none,
      jobs,
      lacks,
    };
    printStatus(context.out, 'daemon-status', found, '`systemctl start oomtune` starts it');
    return 0;
  }
  const store = await context.store();
  const { daemonStatus } = await import('../../daemon/index.js');
  const status = { schema: 1 as const, ...(await daemonStatus(store)) };
  printStatus(context.out, 'daemon-status', status, '`oomtune daemon start` starts it');
  return 0;
};

/** Runs until a signal, the normal end of a daemon, so the exit code is 0. */
export const run: Verb = async ({ options }, context) => {
  const settings = settingsOf(options);
  const system = options.system ? systemSettings(options.adminGroup, context.redisUrl) : null;
  if (system !== null) useHome(join(system.home, 'daemon'));
  const store = await context.store();
  const { runDaemon } = await import('../../daemon/index.js');
  await runDaemon(store, { signal: context.signal, ...settings, ...(system === null ? {} : { system }) });
  return 0;
};

/** Writes the unit of the daemon for all users, or prints it. */
export const install: Verb = async ({ options }, { out }) => {
  if (!options.system) {
    throw usageError(
      'Only the daemon for all users of a machine is installed.',
      'Write: oomtune daemon install --system. One of your own is started by `oomtune daemon start`.',
    );
  }
  const group = groupOf(options.adminGroup);
  const { installUnit, systemUnit } = await import('../../daemon/system/install.js');
  if (options.print) {
    const unit = systemUnit(group);
    if (out.json) out.document('daemon-install', { schema: 1, unit, done: [] });
    else out.exact(unit);
    return 0;
  }
  const done = installUnit(group);
  if (out.json) out.document('daemon-install', { schema: 1, unit: systemUnit(group), done });
  else for (const line of done) out.note(line);
  return 0;
};

function groupOf(value: unknown): string {
  const group = String(value ?? 'oomtune-admin');
  if (/^[\w.@-]{1,64}$/.test(group)) return group;
  throw usageError(`Expected --admin-group to be the name of a group, got "${group}".`, '`getent group` lists them.');
}

/** Throws OOMTUNE_USAGE for who is not root, and with a Redis that others may reach. */
function systemSettings(adminGroup: unknown, redisUrl: string | null): SystemSettings {
  if (process.getuid?.() !== 0) {
    throw usageError(
      'A daemon for all users of the machine has to run as root: jobs run as whoever submitted them.',
      'Start it as root, or leave out --system for a daemon of your own.',
    );
  }
  if (redisUrl !== null) {
    throw usageError(
      'With --system the daemon has a Redis of its own: whoever can write to another could run commands as root.',
      'Leave out --redis and OOMTUNE_REDIS_URL.',
    );
  }
  const group = groupOf(adminGroup);
  const socket = systemSocket();
  if (socket === null)
    throw usageError('OOMTUNE_SYSTEM_SOCKET is empty.', 'Unset it, or name the path of the socket to make.');
  return { socket, home: resolve(process.env.OOMTUNE_SYSTEM_HOME || '/var/lib/oomtune'), adminGroup: group };
}

function settingsOf(values: Record<string, unknown>): StartOptions {
  const { cpuLanes, httpPort, httpHost: host } = values;
  const lanes = readNumber('--cpu-lanes', cpuLanes, {
    least: 1,
    most: 9999,
    remedy: 'Write how many jobs may run at a time with --device cpu.',
  });
  const port = readNumber('--http-port', httpPort, {
    most: 65_535,
    remedy: 'Write where the dashboard is to be served, or 0 for nowhere.',
  });
  if (host !== undefined && !/^[\w.:-]{1,255}$/.test(String(host))) {
    throw usageError(`Expected --http-host to be an address, got "${host}".`, 'Write one of this machine: 127.0.0.1.');
  }
  return {
    allowInsecureRedis: Boolean(values.allowInsecureRedis),
    ...(lanes === null ? {} : { cpuLanes: lanes }),
    ...(port === null ? {} : { httpPort: port }),
    ...(host === undefined ? {} : { httpHost: String(host) }),
    ...(values.metricsOpen ? { metricsOpen: true } : {}),
    ...(values.label === undefined ? {} : { labels: toLabels(values.label) }),
  };
}
