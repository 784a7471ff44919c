import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { freePort } from '../store/home.js';
import { Oomtune } from './oomtune.js';

/** Whether this machine's redis-server speaks TLS; its makers may leave that out. */
const speaksTls = (() => {
  try {
    return execFileSync(
      'sh',
      ['-c', 'redis-server --tls-port 1 --port 0 --daemonize no --tls-cert-file /nowhere 2>&1 || true'],
      {
        encoding: 'utf8',
        timeout: 10_000,
      },
    );
  } catch (error) {
    return String(error);
  }
})();
const reason = /Bad directive|wrong number of arguments|without TLS/i.test(speaksTls) ? speaksTls.trim() : null;
if (reason !== null) console.warn(`Redis over TLS was not tried: ${reason}`);

const PASSWORD = 'a@b:c/d?e%';

describe.skipIf(reason !== null)('two hosts with one Redis, over TLS and with a password', () => {
  const folder = mkdtempSync(join(tmpdir(), 'oomtune-tls-'));
  const [one, two] = [new Oomtune(), new Oomtune()];
  let url = '';
  let redis: ReturnType<typeof spawn>;
  const openssl = (...args: string[]) => execFileSync('openssl', args, { cwd: folder, stdio: 'pipe' });
  const env = (host: string): NodeJS.ProcessEnv => ({
    OOMTUNE_REDIS_URL: url,
    OOMTUNE_HOST: host,
    NODE_EXTRA_CA_CERTS: join(folder, 'ca.pem'),
  });
  const first = (args: string[]) => one.call(args, { env: env('alpha') });
  const second = (args: string[]) => two.call(args, { env: env('beta') });
  const submit = async (...args: string[]) => {
    const { code, stdout, stderr } = await first(['submit', '--device', 'cpu', '--budget', '100MiB', ...args]);
    expect(code, stderr).toBe(0);
    return stdout.trim();
  };
  const status = async (job: string) => {
    const { stdout } = await first(['status', '--json', job]);
    return JSON.parse(stdout).jobs[0] as { state: string; host: string; reason: string };
  };

  beforeAll(async () => {
    const subject = (name: string) => ['-subj', `/CN=${name}`];
    openssl(
      'req',
      '-x509',
      '-newkey',
      'rsa:2048',
      '-nodes',
      '-days',
      '2',
      '-keyout',
      'ca.key',
      '-out',
      'ca.pem',
      ...subject('test'),
    );
    openssl(
      'req',
      '-newkey',
      'rsa:2048',
      '-nodes',
      '-keyout',
      'redis.key',
      '-out',
      'redis.csr',
      ...subject('localhost'),
    );
    execFileSync(
      'bash',
      [
        '-c',
        'openssl x509 -req -in redis.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out redis.pem -extfile <(echo subjectAltName=DNS:localhost)',
      ],
      { cwd: folder, stdio: 'pipe' },
    );
    const port = await freePort();
    const files = ['--tls-cert-file', 'redis.pem', '--tls-key-file', 'redis.key', '--tls-ca-cert-file', 'ca.pem'];
    const words = [
      '--port',
      '0',
      '--tls-port',
      String(port),
      ...files,
      '--tls-auth-clients',
      'no',
      '--requirepass',
      PASSWORD,
      '--save',
      '',
    ];
    redis = spawn('redis-server', [...words, '--dir', folder], { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] });
    await new Promise<void>((resolve, reject) => {
      redis.stdout?.on('data', (data: Buffer) => data.includes('Ready to accept') && resolve());
      redis.once('exit', () => reject(new Error('redis-server ended')));
    });
    url = `rediss://:${encodeURIComponent(PASSWORD)}@localhost:${port}`;
    for (const started of [
      await first(['daemon', 'start', '--http-port', '0', '--label', 'rack=a', '--label', 'nvlink']),
      await second(['daemon', 'start', '--http-port', '0', '--label', 'rack=b']),
    ])
      expect(started.code, started.stderr).toBe(0);
  });
  afterAll(async () => {
    await first(['daemon', 'stop', '--kill']);
    await second(['daemon', 'stop', '--kill']);
    redis?.kill('SIGKILL');
    await Promise.all([one.close(), two.close()]);
    rmSync(folder, { recursive: true, force: true });
  });

  it('takes no certificate that nobody vouches for, and no wrong password', async () => {
    const strange = await one.call(['status'], { env: { ...env('alpha'), NODE_EXTRA_CA_CERTS: '' } });
    expect(strange.code).toBe(5);
    expect(strange.stderr).toMatch(/OOMTUNE_REDIS_(UNREACHABLE|REFUSED)/);
    expect(strange.stderr).toMatch(/certificate[\s\S]*NODE_EXTRA_CA_CERTS/);
    const bare = await one.call(['status'], {
      env: { ...env('alpha'), OOMTUNE_REDIS_URL: url.replace('rediss:', 'redis:') },
    });
    expect(bare.code).toBe(5);
    expect(bare.stderr).toMatch(/closes the connection at once[\s\S]*write rediss:/);
    const wrong = await one.call(['status'], {
      env: { ...env('alpha'), OOMTUNE_REDIS_URL: url.replace(/:[^:@]*@/, ':wrong@') },
    });
    expect(wrong.code).toBe(5);
    for (const { stdout, stderr } of [strange, wrong, await first(['redis', 'url'])]) {
      expect(stdout + stderr).not.toContain(PASSWORD);
      expect(stdout + stderr).not.toContain(encodeURIComponent(PASSWORD));
    }
  });

  it('runs jobs on the host that is named, or has the label', async () => {
    const jobs = [
      await submit('--host', 'beta', '--', 'sh', '-c', 'echo on beta'),
      await submit('--label', 'rack=b', '--', 'sh', '-c', 'echo by rack'),
      await submit('--label', 'nvlink', '--label', 'rack=a', '--', 'sh', '-c', 'echo by both'),
    ];
    const waited = await first(['wait', ...jobs]);
    expect(waited.code, waited.stderr).toBe(0);
    const hosts = await Promise.all(jobs.map(async (job) => (await status(job)).host));
    expect(hosts).toEqual(['beta', 'beta', 'alpha']);
    // its output is seen from the other host
    expect((await first(['logs', jobs[1] as string])).stdout).toContain('by rack');
  });

  it('says why a job waits that no host suits', async () => {
    const job = await submit('--label', 'rack=c', '--', 'true');
    for (let looks = 0; !/rack=c/.test((await status(job)).reason ?? ''); looks++) {
      if (looks > 100) throw new Error(`no reason: ${JSON.stringify(await status(job))}`);
      await new Promise((resolve) => setTimeout(resolve, 300));
    }
    expect((await status(job)).reason).toMatch(/^no host has .* on a host with "rack=c"; there are alpha, beta$/);
    expect((await second(['cancel', job])).code).toBe(0); // from any host
  });

  it('refuses a label that is none', async () => {
    expect((await first(['submit', '--label', 'a b', '--', 'true'])).code).toBe(2);
    expect((await first(['daemon', 'start', '--label', '='])).code).toBe(2);
  });
});
