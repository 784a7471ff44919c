import { spawn } from 'node:child_process';
import { closeSync, existsSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { createConnection } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { writeWhole } from '../common/durable-file.js';
import { OomtuneError } from '../common/errors.js';
import { findExecutable } from '../common/executable.js';
import { homeFolder, stateFolder } from '../common/home.js';
import { socketPath } from '../common/private-folder.js';
import { systemText } from '../common/regular-file.js';
import type { RedisStatus } from '../contract/verbs.js';
import { serverFacts } from './safety.js';
import { unixUrl } from './url.js';

/** `error`: the server refuses (busy, loading, needs a password). `nobody`: no answer within two seconds. */
type Answer = { is: 'text'; text: string } | { is: 'error'; message: string } | { is: 'nobody' };

/** Sends one command to a Redis on a unix socket, without a client library. */
export function ask(socket: string, command: 'PING' | 'INFO' | 'SHUTDOWN'): Promise<Answer> {
  return new Promise((resolve) => {
    const connection = createConnection(socket);
    let text = '';
    const done = (answer: Answer): void => {
      connection.destroy();
      resolve(answer);
    };
    connection.setTimeout(2000, () => done({ is: 'nobody' }));
    connection.on('error', () => done({ is: 'nobody' }));
    connection.on('close', () => done({ is: 'nobody' }));
    connection.on('connect', () => connection.write(`${command}\r\n`));
    connection.on('data', (data) => {
      text += data.toString('latin1');
      const size = /^\$(\d+)\r\n/.exec(text);
      if (size !== null && text.length < size[0].length + Number(size[1])) return;
      if (!text.includes('\r\n')) return;
      if (text.startsWith('-')) done({ is: 'error', message: text.slice(1).trim() });
      else done({ is: 'text', text: size === null ? text.trim() : text.slice(size[0].length) });
    });
  });
}

const START_SECONDS = 20;
/** flock(1)'s exit code when somebody else holds the lock. */
const LOCKED = 75;

/**
 * Starts the redis-server of this home if need be, in its own session, on a unix socket in a private folder, with an
 * append-only file. It holds a flock on `redis/lock` while it lives, so that only one opens that file. Returns the socket's path.
 * Throws OOMTUNE_REDIS_MISSING or OOMTUNE_REDIS_UNREACHABLE.
 */
export async function ensureEmbeddedRedis(): Promise<string> {
  const folder = stateFolder('redis');
  const socket = embeddedSocket();
  const deadline = Date.now() + START_SECONDS * 1000;
  rmSync(join(folder, 'stopped'), { force: true });
  for (;;) {
    const answer = await ask(socket, 'PING');
    if (serves(answer)) return socket;
    if (answer.is === 'error' && Date.now() < deadline) {
      await delay(100); // it still loads its data: starting another would only find its lock
      continue;
    }
    const ended = await start(folder, socket, deadline);
    if (ended === 'up') return socket;
    if (Date.now() > deadline) break;
    if (ended !== LOCKED) throw failedToStart(folder);
    await delay(100); // somebody else starts it, or the last one is still going
  }
  throw new OomtuneError(
    'OOMTUNE_REDIS_UNREACHABLE',
    `The embedded Redis in ${folder} is held by a server that does not answer.`,
    `Another host may share this folder: give each its own OOMTUNE_HOME, or one Redis by --redis URL. See also ${join(folder, 'redis.log')}.`,
  );
}

/** Whether it serves commands at all; a single refusal is best reported where it happens. */
const serves = (answer: Answer): boolean =>
  answer.is === 'text' || (answer.is === 'error' && !answer.message.startsWith('LOADING'));

/** Whether `redis stop` stopped it: clients that lose it then do not restart it. */
export const wasStopped = (): boolean => existsSync(join(stateFolder('redis'), 'stopped'));

/** `redis/redis.sock`, or a shorter path where that is too long for a socket. */
export const embeddedSocket = (): string =>
  socketPath(homeFolder(), join(homeFolder(), 'redis', 'redis.sock'), 'redis.sock');

export async function embeddedStatus(): Promise<RedisStatus> {
  const folder = stateFolder('redis');
  const answer = await ask(embeddedSocket(), 'INFO');
  const facts = serverFacts(answer.is === 'text' ? answer.text : '');
  return { running: answer.is !== 'nobody', url: unixUrl(embeddedSocket()), embedded: true, ...facts, folder };
}

/** Saves everything and ends the server. False: it did not run. Throws OOMTUNE_REDIS_REFUSED if it goes on. */
export async function stopEmbeddedRedis(): Promise<boolean> {
  const socket = embeddedSocket();
  if ((await ask(socket, 'PING')).is === 'nobody') return false;
  const mark = join(stateFolder('redis'), 'stopped');
  writeFileSync(mark, '', { mode: 0o600 });
  const answer = await ask(socket, 'SHUTDOWN');
  const deadline = Date.now() + START_SECONDS * 1000;
  while (answer.is !== 'error' && existsSync(socket) && Date.now() < deadline) await delay(20);
  if (!existsSync(socket)) return true;
  rmSync(mark, { force: true });
  throw new OomtuneError(
    'OOMTUNE_REDIS_REFUSED',
    `The embedded Redis does not end${answer.is === 'error' ? `: ${answer.message}` : ''}.`,
    `Try again in a moment; see ${join(stateFolder('redis'), 'redis.log')}.`,
  );
}

/** A server outlives whoever started it: it keeps of the environment what it needs to be found and loaded, and nothing else. */
export function serverEnvironment(): NodeJS.ProcessEnv {
  const { PATH, LD_LIBRARY_PATH } = process.env;
  return { PATH, LANG: 'C.UTF-8', ...(LD_LIBRARY_PATH ? { LD_LIBRARY_PATH } : {}) };
}

/** One try: `up`, or the starter's exit code. */
async function start(folder: string, socket: string, deadline: number): Promise<'up' | number> {
  const server = findServer();
  const config = writeConfig(folder, socket);
  const log = openSync(join(folder, 'redis.log'), 'a', 0o600);
  // --no-fork: flock becomes the server, which thus holds the lock until it ends
  const flock = ['flock', '--nonblock', '-E', String(LOCKED), '--no-fork', join(folder, 'lock'), server, config];
  const child = spawn('/bin/sh', ['-c', 'umask 077; exec "$@"', 'sh', ...flock], {
    cwd: folder,
    detached: true, // its own session: a Ctrl-C at the terminal is not for it
    stdio: ['ignore', log, log],
    env: serverEnvironment(),
  });
  closeSync(log);
  child.unref();
  let ended: number | null = null;
  child.once('exit', (code) => {
    ended = code ?? 1;
  });
  child.once('error', () => {
    ended = 127;
  });
  for (let wait = 5; ; wait = Math.min(wait * 1.2, 50)) {
    await delay(wait);
    // A shell says 127 of a program that it does not find; so does the loader where the server lacks a library, which the log tells.
    if (ended === 127 && findExecutable('flock', process.env) === null) {
      throw new OomtuneError(
        'OOMTUNE_REDIS_MISSING',
        'The program flock, which guards the embedded Redis, is not installed.',
        'sudo apt-get install -y util-linux redis-server',
      );
    }
    if (ended !== null) return ended;
    if (serves(await ask(socket, 'PING'))) return 'up';
    if (Date.now() > deadline) return LOCKED;
  }
}

function writeConfig(folder: string, socket: string): string {
  const path = join(folder, 'redis.conf');
  const quote = (text: string): string => `"${text.replace(/[\\"]/g, '\\$&')}"`;
  const lines = [
    '# Written at each start.',
    'port 0',
    `unixsocket ${quote(socket)}`,
    'unixsocketperm 600',
    `dir ${quote(folder)}`,
    `pidfile ${quote(join(folder, 'redis.pid'))}`,
    'daemonize no',
    'appendonly yes',
    'appendfsync everysec',
    'auto-aof-rewrite-min-size 16mb',
    'save ""',
    'maxmemory 0',
    'maxmemory-policy noeviction',
    'loglevel notice',
    'set-proc-title yes',
  ];
  writeWhole(path, `${lines.join('\n')}\n`);
  return path;
}

function findServer(): string {
  const found = findExecutable('redis-server', process.env) ?? findExecutable('valkey-server', process.env);
  if (found !== null) return found;
  throw new OomtuneError(
    'OOMTUNE_REDIS_MISSING',
    'The redis-server executable is not installed.',
    'sudo apt-get install -y redis-server, or name a Redis by --redis URL or OOMTUNE_REDIS_URL.',
  );
}

function failedToStart(folder: string): OomtuneError {
  const log = join(folder, 'redis.log');
  const last = systemText(log).trimEnd().split('\n').at(-1) ?? '';
  return new OomtuneError(
    'OOMTUNE_REDIS_UNREACHABLE',
    `The embedded Redis did not start${last === '' ? '' : `: ${last}`}.`,
    `See ${log}; is the disk full, or the append-only file broken (redis-check-aof --fix)?`,
  );
}
