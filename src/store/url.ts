import { isAbsolute } from 'node:path';
import type { RedisOptions } from 'ioredis';
import { type OomtuneError, usageError } from '../common/errors.js';

export interface RedisTarget {
  options: RedisOptions;
  /** Without user and password: may be shown. */
  shown: string;
  /** The connection cannot be read or entered by strangers: a unix socket, or loopback, or TLS with a password. */
  guarded: boolean;
}

const REMEDY = 'Write redis://host:6379, rediss://user:password@host:6380/0 or unix:///path/to/redis.sock.';
const ESCAPES =
  'Signs of a user or password that end it are escaped: %2F for /, %3F for ?, %23 for #, %40 for @, %25 for %.';

/** Reads `redis://[user:password@]host[:port][/db]`, `rediss://…` or `unix:///path[?db=N&username=U&password=P]`. Throws OOMTUNE_USAGE. */
export function parseRedisUrl(text: string): RedisTarget {
  if (/^unix:/i.test(text)) return parseUnix(text);
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw wrong(text, 'it is not a URL');
  }
  if (url.protocol !== 'redis:' && url.protocol !== 'rediss:')
    throw wrong(text, `its scheme is ${url.protocol.slice(0, -1)}`);
  if (`${url.pathname}${url.search}${url.hash}`.includes('@')) throw wrong(text, 'its user or password ends early');
  const tls = url.protocol === 'rediss:';
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1') || '127.0.0.1';
  const port = url.port === '' ? 6379 : Number(url.port);
  const db = database(url.pathname.slice(1), text);
  const username = decode(url.username, text);
  const password = decode(url.password, text);
  return {
    options: {
      host,
      port,
      db,
      username: username || undefined,
      password: password || undefined,
      tls: tls ? { servername: /^[\d.:]+$/.test(host) ? undefined : host } : undefined,
    },
    shown: `${url.protocol}//${host.includes(':') ? `[${host}]` : host}:${port}${db === 0 ? '' : `/${db}`}`,
    guarded: /^(localhost|127(\.\d+){3}|::1)$/.test(host) || (tls && password !== ''),
  };
}

function parseUnix(text: string): RedisTarget {
  const match = /^unix:\/\/([^/?]*)(\/[^?]*)?(?:\?(.*))?$/i.exec(text);
  const path = decode(match?.[2] ?? '', text);
  if (match === null || match[1] !== '' || !isAbsolute(path) || path === '/')
    throw wrong(text, 'the path of a unix socket has to be absolute, after three slashes');
  const query = new URLSearchParams(match[3] ?? '');
  const db = database(query.get('db') ?? '', text);
  return {
    options: {
      path,
      db,
      username: query.get('username') || undefined,
      password: query.get('password') || undefined,
    },
    shown: `${unixUrl(path)}${db === 0 ? '' : `?db=${db}`}`,
    guarded: true,
  };
}

/** `unix:///path`; escapes only what would end the path. */
export const unixUrl = (path: string): string => `unix://${path.replace(/[%?#]/g, encodeURIComponent)}`;

/** The URL without user and password, for messages. They go as far as the last sign that may belong to them, escaped or not. */
export function withoutPassword(text: string): string {
  return text.replace(/([?&](?:username|password)=).*/is, '$1…').replace(/\/\/.*@/s, '//');
}

function wrong(text: string, why: string): OomtuneError {
  const remedy = text.includes('@') ? `${REMEDY}\n${ESCAPES}` : REMEDY;
  return usageError(`Expected a Redis URL, got "${withoutPassword(text)}": ${why}.`, remedy);
}

function database(text: string, url: string): number {
  if (text === '') return 0;
  if (!/^\d{1,4}$/.test(text)) throw wrong(url, 'the database has to be a number');
  return Number(text);
}

function decode(text: string, url: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw wrong(url, 'it holds a "%" that stands for nothing; write %25');
  }
}
