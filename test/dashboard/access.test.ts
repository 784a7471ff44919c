import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { checkHost } from '../../src/daemon/http/guard.js';
import { Authenticator, dashboardToken, tokenPath } from '../../src/daemon/http/token.js';
import { ROOT, useHome } from '../store/home.js';
import { job } from '../store/samples.js';
import { Dashboard } from './server.js';

const home = useHome();
let dashboard: Dashboard;

beforeAll(async () => {
  dashboard = await Dashboard.start();
});
afterAll(async () => dashboard.close());

const login = (token: string, headers: Record<string, string> = {}) =>
  dashboard.ask('/api/login', {
    known: false,
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ token }),
  });

/** The session's cookie, as a browser sends it back. */
async function cookie(): Promise<string> {
  const { headers } = await login(dashboard.token);
  return (headers['set-cookie']?.[0] ?? '').split(';')[0] as string;
}

describe('the token', () => {
  it('stands in a file of this user alone, and stays the same', () => {
    expect(tokenPath()).toBe(join(home, 'daemon', 'dashboard-token'));
    expect(statSync(tokenPath()).mode & 0o777).toBe(0o600);
    expect(statSync(join(home, 'daemon')).mode & 0o777).toBe(0o700);
    expect(dashboardToken()).toBe(dashboard.token);
    expect(dashboard.token).toMatch(/^[\w-]{43}$/);
  });

  it('is made anew where its file was cut off', () => {
    const file = join(home, 'cut-off');
    writeFileSync(file, 'abc');
    expect(dashboardToken(file)).toMatch(/^[\w-]{43}$/);
  });

  it('is needed for everything but the page itself', async () => {
    for (const path of ['/api/session', '/api/stream', '/api/jobs/j-abcdef', '/api/machine', '/metrics']) {
      const answer = await dashboard.ask(path, { known: false });
      expect(answer.status, path).toBe(401);
      expect(answer.json.error?.remedy).toContain('oomtune dashboard');
    }
    expect((await dashboard.ask('/api/jobs/j-abcdef/cancel', { known: false, method: 'POST' })).status).toBe(401);
    expect((await dashboard.ask('/', { known: false })).status).toBe(200);
  });

  it('every refusal is an error with a code that the reference lists, and a remedy', async () => {
    const reference = readFileSync('docs/reference/errors.md', 'utf8');
    const refusals = [
      await dashboard.ask('/api/session', { known: false }),
      await dashboard.ask('/', { headers: { host: 'elsewhere.example' } }),
      await dashboard.ask('/api/session', { method: 'POST', headers: { origin: 'http://elsewhere.example' } }),
      await dashboard.ask('/nothing/here'),
      await dashboard.ask('/api/login', { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{' }),
    ];
    expect(refusals.map(({ status }) => status)).toEqual([401, 403, 403, 404, 400]);
    for (const { json } of refusals) {
      expect(reference).toContain(`| [\`${json.error?.code}\`](#`);
      expect(json.error?.remedy).not.toBe('');
    }
  });

  it('is refused when it is wrong in any way', async () => {
    const { token } = dashboard;
    const wrong = [`${token}x`, token.slice(1), token.toLowerCase(), '', 'x'.repeat(200)];
    for (const one of wrong) {
      const headers = { authorization: `Bearer ${one}` };
      const answer = await dashboard.ask('/api/session', { known: false, headers });
      expect(answer.status, one).toBe(401);
      expect((await login(one)).status).toBe(401);
    }
    expect(
      (await dashboard.ask('/api/session', { known: false, headers: { authorization: `Basic ${token}` } })).status,
    ).toBe(401);
  });

  it('is in no answer', async () => {
    for (const path of ['/', '/app.js', '/api/session', '/api/machine', '/metrics']) {
      const { text, headers } = await dashboard.ask(path);
      expect(text + JSON.stringify(headers)).not.toContain(dashboard.token);
    }
    expect(JSON.stringify((await login(dashboard.token)).headers)).not.toContain(dashboard.token);
  });
});

describe('a session', () => {
  it('begins with the token, in a cookie that no script and no other site gets', async () => {
    const answer = await login(dashboard.token);
    expect(answer.status).toBe(204);
    const [set = ''] = answer.headers['set-cookie'] ?? [];
    expect(set).toMatch(/^oomtune_\d+=\d+\.[\w-]{16}\.[\w-]{43}; Max-Age=\d+; Path=\/; HttpOnly; SameSite=Strict$/);
    const known = { known: false, headers: { cookie: await cookie() } };
    expect((await dashboard.ask('/api/session', known)).status).toBe(200);
  });

  it('is not taken when it is forged or over', async () => {
    const good = await cookie();
    const forged = [
      good.replace(/=\d/, '=9'),
      `${good.slice(0, -1)}${good.endsWith('A') ? 'B' : 'A'}`,
      good.replace('oomtune_', 'other_'),
      good.split('.')[0] as string,
    ];
    for (const one of forged) {
      expect((await dashboard.ask('/api/session', { known: false, headers: { cookie: one } })).status, one).toBe(401);
    }
    const gate = new Authenticator('some token');
    const { value, seconds } = gate.newSession(0);
    expect(gate.acceptsSession(value, seconds * 1000 - 1)).toBe(true);
    expect(gate.acceptsSession(value, seconds * 1000 + 1)).toBe(false);
    expect(new Authenticator('another token').acceptsSession(value, 0)).toBe(false);
  });

  it('changes nothing for a request that does not say that it comes from our page', async () => {
    const record = job();
    await dashboard.store.jobs.create(record);
    const known = { cookie: await cookie() };
    const post = async (headers: Record<string, string>): Promise<number> => {
      const asked = { known: false, method: 'POST', headers: { ...known, ...headers } };
      return (await dashboard.ask(`/api/jobs/${record.job}/cancel`, asked)).status;
    };
    expect(await post({})).toBe(403);
    expect(await post({ origin: 'http://evil.example' })).toBe(403);
    expect(await post({ origin: 'null' })).toBe(403);
    expect(await post({ origin: 'http://127.0.0.1:1' })).toBe(403);
    expect(await post({ 'sec-fetch-site': 'same-site' })).toBe(403);
    expect(await post({ 'sec-fetch-site': 'cross-site', origin: dashboard.origin })).toBe(403);
    expect((await dashboard.store.jobs.get(record.job))?.state).toBe('queued');
    expect(await post({ 'sec-fetch-site': 'same-origin', origin: dashboard.origin })).toBe(200);
    expect((await dashboard.store.jobs.get(record.job))?.state).toBe('cancelled');
  });
});

describe('other sites', () => {
  it('get no answer to what they make a browser ask', async () => {
    for (const site of ['cross-site', 'same-site']) {
      for (const path of ['/api/stream', '/api/machine']) {
        expect((await dashboard.ask(path, { headers: { 'sec-fetch-site': site } })).status, path).toBe(403);
      }
    }
    expect((await login(dashboard.token, { origin: 'http://evil.example' })).status).toBe(403);
    const form = { 'content-type': 'text/plain' };
    expect((await login(dashboard.token, form)).status).toBe(415);
    const answer = await dashboard.ask('/api/session', { headers: { origin: 'http://evil.example' } });
    expect([answer.status, answer.headers['access-control-allow-origin']]).toEqual([403, undefined]);
  });

  it('cannot pass as ours by pointing a name of theirs here', async () => {
    for (const host of ['evil.example', 'evil.example:80', 'localhost.evil.example', '127.0.0.1.evil.example', 'a b']) {
      expect((await dashboard.ask('/', { headers: { host } })).status, host).toBe(403);
    }
    for (const host of ['localhost:9000', '127.0.0.1', '[::1]:8421', '192.0.2.7:8421', 'gpu-7', 'GPU-7:80']) {
      expect(checkHost(host, 'gpu-7'), host).toBeNull();
    }
    for (const host of [undefined, '', 'gpu-8', '[::1', '::1', 'localhost:99999999']) {
      expect(checkHost(host, 'gpu-7'), String(host)).not.toBeNull();
    }
  });
});

describe('what is served', () => {
  it('allows nothing but our own files', async () => {
    for (const path of ['/', '/app.js', '/api/session', '/metrics', '/nothing']) {
      const { headers } = await dashboard.ask(path);
      const policy = headers['content-security-policy'] as string;
      expect(policy, path).toContain("default-src 'none'");
      expect(policy).not.toMatch(/unsafe|\*|https?:/);
      expect(headers['x-content-type-options']).toBe('nosniff');
      expect(headers['cross-origin-resource-policy']).toBe('same-origin');
      expect(headers['referrer-policy']).toBe('no-referrer');
    }
    expect((await dashboard.ask('/api/session')).headers['cache-control']).toBe('no-store');
  });

  it('names no file of another host, and no script within the page', () => {
    const folder = join(ROOT, 'web');
    for (const name of readdirSync(folder)) {
      const text = readFileSync(join(folder, name), 'utf8').replaceAll('http://www.w3.org/2000/svg', '');
      expect(text, name).not.toMatch(/https?:\/\/|@import|url\(/);
      expect(text, name).not.toMatch(/innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function/);
      if (name.endsWith('.html')) expect(text).not.toMatch(/<script(?![^>]*\bsrc=)[^>]*>|<style|\sstyle=|\son\w+=/);
    }
  });

  it('is nothing outside the folder of the page', async () => {
    for (const path of [
      '/../package.json',
      '/..%2fpackage.json',
      '/%2e%2e/package.json',
      '//etc/passwd',
      '/web/app.js',
      '/daemon/dashboard-token',
    ]) {
      expect((await dashboard.ask(path)).status, path).toBe(404);
    }
  });

  it('is said to be unchanged to whoever has it', async () => {
    const first = await dashboard.ask('/uplot.js', { known: false });
    expect(first.headers['content-type']).toBe('text/javascript; charset=utf-8');
    const again = await dashboard.ask('/uplot.js', { headers: { 'if-none-match': first.headers.etag as string } });
    expect([again.status, again.text]).toEqual([304, '']);
  });

  it('tells a wrong request from a fault', async () => {
    const headers = { 'content-type': 'application/json' };
    expect((await dashboard.ask('/api/login', { method: 'POST', headers, body: '{' })).status).toBe(400);
    expect((await dashboard.ask('/api/login', { method: 'POST', headers, body: 'x'.repeat(10_000) })).status).toBe(413);
    expect((await dashboard.ask('/api/jobs/__proto__')).status).toBe(404);
    expect((await dashboard.ask('/api/jobs/j-abcdef/constructor', { method: 'POST' })).status).toBe(409);
    expect((await dashboard.ask('/api/stream?job=../x')).status).toBe(404);
    expect((await dashboard.ask('/api/stream?job=j-aaaa&job=j-bbbb')).status).toBe(404);
  });
});

describe('connections that say nothing', () => {
  it.each([
    ['nothing at all', ''],
    ['half a request', 'GET / HTTP/1.1\r\nhost: localhost\r\n'],
    [
      'a request without its body',
      'POST /api/login HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n',
    ],
    ['a request that is done', 'GET / HTTP/1.1\r\nhost: localhost\r\n\r\n'],
  ])('(%s) keep nobody out', async (_, said) => {
    let closed = 0;
    const sockets = Array.from({ length: 600 }, (): Socket => {
      const socket = connect(Number(new URL(dashboard.url).port), '127.0.0.1');
      socket.on('error', () => {});
      socket.on('close', () => {
        closed += 1;
      });
      socket.on('data', () => {});
      socket.write(said);
      return socket;
    });
    await expect.poll(() => closed, { timeout: 10_000 }).toBeGreaterThanOrEqual(600 - 256);
    for (let n = 0; n < 5; n += 1) expect((await dashboard.ask('/', { known: false })).status).toBe(200);
    for (const socket of sockets) socket.destroy();
  });
});
