import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createLog } from '../../../src/common/log.js';
import type { JobRecord } from '../../../src/contract/job.js';
import { AgentJobs } from '../../../src/daemon/system/agent-jobs.js';
import { LeaseDesk } from '../../../src/daemon/system/lease-desk.js';
import { PROGRAM } from '../../cli/oomtune.js';
import { ROOT, until } from '../../store/home.js';
import { job, options, recommendation } from '../../store/samples.js';
import { Machine, noUsers, type User } from './machine.js';

/** What a second user of the machine tries. Each attempt is a test; the daemon serves the first one all the while. */
describe.skipIf(noUsers !== null)('a hostile user', () => {
  let machine: Machine;
  let alice: User;
  let mallory: User;
  const secret = 'hunter2';
  let hers: string;
  let pid: number;

  beforeAll(async () => {
    machine = new Machine();
    alice = machine.user();
    mallory = machine.user();
    await machine.start();
    const file = join(alice.home, 'pid');
    const line = `echo ${secret}-output; echo $$ > ${file}.new; mv ${file}.new ${file}; exec sleep 600`;
    hers = await alice.submit(['sh', '-c', `: ${secret}-command; ${line}`], [], {
      env: { HER_TOKEN: `${secret}-environment` },
    });
    await until(() => existsSync(file));
    pid = Number(readFileSync(file, 'utf8'));
    await until(async () => (await (await machine.store()).jobs.get(hers))?.state === 'running');
  });
  afterAll(() => machine.close());

  /** Sends these lines as mallory and returns what comes back, until the daemon closes or `ms` have passed. */
  const send = async (lines: unknown[], { ms = 1500, first = false }: { ms?: number; first?: boolean } = {}) => {
    const { stdout } = await mallory.script(`
      import { connect } from 'node:net';
      const socket = connect(${JSON.stringify(machine.socket)});
      socket.on('error', () => {});
      let said = '';
      socket.on('data', (data) => {
        said += data;
        process.stdout.write(data, () => ${first} && said.includes('\\n') && process.exit());
      });
      socket.on('close', () => { console.log('closed'); process.exit(); });
      for (const line of ${JSON.stringify(lines)}) socket.write((typeof line === 'string' ? line : JSON.stringify(line)) + '\\n');
      setTimeout(() => process.exit(), ${ms});
    `);
    return stdout;
  };
  const ask = async (call: string, ...args: unknown[]): Promise<{ value?: unknown; error?: { code: string } }> => {
    const said = await send([{ id: 1, call, args }], { ms: 60_000, first: true });
    return JSON.parse(said.split('\n')[0] ?? '{}');
  };
  const serves = async (): Promise<void> => {
    expect((await alice.json<{ jobs: { state: string }[] }>(['status', hers])).jobs[0]?.state).toBe('running');
    expect(machine.daemon?.exitCode).toBeNull();
  };
  const asked = (changes: Partial<JobRecord>): JobRecord =>
    job({ command: ['true'], options: options({ cwd: mallory.home }), ...changes });

  it("cannot read another's log, environment or command, by the program, by the socket or on the disk", async () => {
    const launch = join(machine.home, 'users', String(alice.uid), 'runs', hers, '1');
    const tries = [
      ...[
        ['logs', hers],
        ['logs', '--json', hers],
        ['explain', '--json', hers],
        ['status', '--json', hers],
      ],
    ].map((args) => mallory.call(args));
    tries.push(mallory.call([join(launch, 'log'), join(launch, 'spec')], { program: ['cat'] }));
    tries.push(mallory.call(['-r', secret, machine.home], { program: ['grep'] }));
    tries.push(mallory.call([`/proc/${pid}/environ`], { program: ['cat'] }));
    for (const { stdout, stderr } of await Promise.all(tries)) expect(`${stdout}${stderr}`).not.toContain(secret);
    expect((await mallory.call(['logs', hers])).stderr).toContain('OOMTUNE_NOT_PERMITTED');
    expect((await mallory.call(['explain', hers])).stdout).toContain(`for ${alice.name} and administrators to see`);
    for (const call of ['jobs.get', 'jobs.find', 'logs.read', 'memory.get'])
      expect(JSON.stringify(await ask(call, hers)), call).not.toContain(secret);
    for (const call of ['jobs.list', 'jobs.live', 'leasing.list', 'leasing.foreground', 'jobs.labels'])
      expect(JSON.stringify(await ask(call)), call).not.toContain(secret);
    expect(JSON.stringify(await ask('jobs.environments', [hers]))).toContain('missing');
    // Neither the daemon's files nor Redis hold a value of an environment
    for (const name of ['redis', 'held', 'ended'].map((one) => join(machine.home, 'daemon', one)))
      if (existsSync(name)) for (const text of textsBelow(name)) expect(text).not.toContain(`${secret}-environment`);
  });

  it('cannot submit as another, nor a job that has begun elsewhere', async () => {
    const forged = asked({
      ...{ owner: alice.name, uid: alice.uid, state: 'running', host: 'elsewhere', key: 'k:cpu:1g:1x', exit_code: 0 },
      launches: [{ launch: 1, dir: join(machine.home, 'daemon'), purpose: 'run', config: null }],
      command: ['sh', '-c', 'id -u > who'],
    });
    expect((await ask('jobs.create', forged)).error).toBeUndefined();
    await mallory.call(['wait', forged.job]);
    expect(readFileSync(join(mallory.home, 'who'), 'utf8').trim()).toBe(String(mallory.uid));
    const made = await (await machine.store()).jobs.get(forged.job);
    expect(made).toMatchObject({ owner: mallory.name, uid: mallory.uid, state: 'succeeded' });
    expect(made?.launches.map(({ dir }) => dir)).toEqual([
      join(machine.home, 'users', String(mallory.uid), 'runs', forged.job, '1'),
    ]);
  });

  it("cannot take another's id, reservation or record", async () => {
    for (const [call, ...args] of [
      ['jobs.create', asked({ job: hers })],
      ['jobs.patch', hers, { state: 'succeeded' }],
      ['jobs.claim', { job: hers, epoch: 1 }, 'host', 'claim'],
      ['persist', hers, { state: 'running' }],
      ['leasing.acquire', hers, { devices: ['cpu:x'], count: 1, bytes: 1, share: true }],
      ['leasing.release', hers, 1],
      ['leasing.forget', hers],
      ['leasing.forgetHost', 'host', hers],
      ['constructor'],
      ['__proto__'],
    ] as [string, ...unknown[]][])
      expect([call, (await ask(call, ...args)).error?.code]).toEqual([
        call,
        expect.stringMatching(/NOT_PERMITTED|USAGE/),
      ]);
    await serves();
  });

  it('cannot put anything into what runs with rights, by variables that programs load things by', async () => {
    const evil = join(mallory.home, 'evil');
    mkdirSync(evil);
    chmodSync(evil, 0o777);
    const traces = join(evil, 'traces');
    writeFileSync(join(evil, 'evil.cjs'), `require('node:fs').appendFileSync('${traces}', process.getuid() + '\\n')`);
    writeFileSync(
      join(evil, 'sitecustomize.py'),
      `import os\nopen('${traces}', 'a').write(str(os.getuid()) + '\\n')\n`,
    );
    writeFileSync(join(evil, 'env.sh'), `id -u >> ${traces}\n`);
    writeFileSync(join(evil, 'setpriv'), `#!/bin/sh\nid -u >> ${traces}\n`, { mode: 0o755 });
    const env = {
      NODE_OPTIONS: `--require=${join(evil, 'evil.cjs')}`,
      PYTHONPATH: evil,
      BASH_ENV: join(evil, 'env.sh'),
      ENV: join(evil, 'env.sh'),
      PATH: `${evil}:${process.env.PATH}`,
      LD_PRELOAD: join(evil, 'evil.so'),
      OOMTUNE_NATIVE: evil,
      OOMTUNE_SYSTEM_HOME: evil,
    };
    const { OOMTUNE_NATIVE: _, ...own } = env;
    const job = await mallory.submit(['python3', '-c', 'print(1)'], [], { env: own });
    expect((await mallory.call(['wait', job])).code).toBe(0);
    await mallory.call(['submit', '--preset', 'none', '--device', 'cpu', '--', 'true'], { env });
    const uids = new Set(readFileSync(traces, 'utf8').trim().split('\n'));
    expect([...uids]).toEqual([String(mallory.uid)]);
    const agents = (await mallory.call(['-U', String(mallory.uid), '-f', '__agent'], { program: ['pgrep'] })).stdout;
    for (const one of [machine.daemon?.pid, ...agents.trim().split('\n')]) {
      const environ = readFileSync(`/proc/${one}/environ`, 'utf8');
      for (const name of ['NODE_OPTIONS', 'LD_PRELOAD', 'PYTHONPATH', 'BASH_ENV', evil])
        expect(environ).not.toContain(name);
    }
  });

  it("cannot lead root's hand by links that change under way", async () => {
    const trap = join(machine.root, 'trap');
    mkdirSync(trap, { mode: 0o700 });
    writeFileSync(join(trap, 'file'), 'of root');
    const own = join(machine.home, 'users', String(mallory.uid));
    const race = mallory.start(
      ['-c', `cd ${own}; while :; do mv runs r2; ln -s ${trap} runs; rm -f runs; mv r2 runs; done`],
      { program: ['sh'] },
    );
    race.stdout?.resume();
    race.stderr?.resume();
    try {
      const jobs: string[] = [];
      for (let at = 0; at < 4; at += 1) jobs.push(await mallory.submit(['true']));
      for (const one of jobs) {
        await mallory.call(['cancel', one]);
        await mallory.call(['retry', one]);
      }
      await mallory.call(['cancel', ...jobs]);
    } finally {
      race.kill('SIGKILL');
    }
    await mallory.call(['-c', `cd ${own}; rm -rf runs; ln -s ${trap} runs`], { program: ['sh'] });
    const last = await mallory.submit(['true']);
    await mallory.call(['wait', last]);
    expect([readdirSync(trap), readFileSync(join(trap, 'file'), 'utf8')]).toEqual([['file'], 'of root']);
    await mallory.call(['-c', `cd ${own}; rm -f runs`], { program: ['sh'] });
    expect((await mallory.call([join(machine.home, 'users', '424242')], { program: ['mkdir'] })).code).not.toBe(0);
    await serves();
  });

  it('cannot forge what was measured for others', async () => {
    const store = await machine.store();
    const real = recommendation({ owner: alice.name, uid: alice.uid });
    await store.recommendations.put(real, null);
    expect(await ask('recommendations.put', { ...real, micro_batch: 1, uid: alice.uid })).toMatchObject({
      value: alice.name,
    });
    await ask('recommendations.demote', real.key, 1);
    expect(await store.recommendations.get(real.key)).toEqual(real);
    const others = { ...real, key: real.key.replace(real.name, 'other'), name: 'other', owner: 'root', uid: 0 };
    await ask('recommendations.put', others);
    expect(await store.recommendations.get(others.key)).toMatchObject({ owner: mallory.name, uid: mallory.uid });
  });

  it('cannot have an agent speak for a job of another, or for what it was not given', async () => {
    const store = await machine.store();
    const devices = async () => [];
    const jobs = new AgentJobs({ store, runtime: { devices } as never, runsOf: (uid) => `/runs/${uid}` });
    const record = await store.jobs.get(hers);
    if (record === null) throw new Error('gone');
    const patches: unknown[] = [];
    const deps = {
      signal: new AbortController().signal,
      persist: async (patch: unknown) => void patches.push(patch),
      progress: () => {},
      records: async () => ({ recommendations: store.recommendations, leasing: store.leasing }),
      log: createLog('test', 'silent'),
    };
    jobs.begin(alice.uid, record, deps as never);
    const call = { signal: new AbortController().signal, note: () => {} };
    const says = (uid: number, name: string, ...args: unknown[]) => jobs.answer(uid, hers, name, args, call);
    await expect(says(mallory.uid, 'persist', { state: 'running' })).rejects.toThrow();
    for (const patch of [
      { launches: [{ launch: 1, dir: '/etc', purpose: 'run', config: null }] },
      { launches: [{ launch: 1, dir: `/runs/${alice.uid}/${hers}/../../../etc`, purpose: 'run', config: null }] },
      { state: 'succeeded' },
    ])
      await expect(says(alice.uid, 'persist', patch)).rejects.toThrow();
    await says(alice.uid, 'persist', { state: 'running', owner: 'root', uid: 0, options: {}, command: ['x'] });
    expect(patches).toEqual([{ state: 'running' }]);
    await expect(says(alice.uid, 'jobs.cancel', hers)).rejects.toThrow();
  });

  it("cannot keep a reservation alive by another's process", async () => {
    const attached: number[] = [];
    const lease = {
      devices: [],
      foreign: [],
      attach: async (run: { supervisorPid: number }) => void attached.push(run.supervisorPid),
    };
    const desk = new LeaseDesk({ devices: async () => [] }, mallory.uid);
    const wish = { devices: ['x'], count: 1, bytes: 1, share: true };
    const granted = await desk.acquire({ acquire: async () => lease as never }, wish, {
      ...{ owner: 'j-mallory1', signal: new AbortController().signal, onWait: () => {} },
    });
    for (const supervisorPid of [1, pid]) await desk.attach(granted.lease, { supervisorPid, dir: '/' });
    expect(attached).toEqual([]);
  });

  it('is cut off for messages that are too large, too many, too deep, or none', async () => {
    const many = Array.from({ length: 70 }, (_, at) => ({ id: at, call: 'events.listen', args: [] }));
    const deep = `{"id":1,"call":"hello","args":${'['.repeat(100_000)}${']'.repeat(100_000)}}`;
    expect(await send([deep], { ms: 60_000, first: true })).not.toContain('"value"');
    for (const lines of [
      ['x'.repeat(5 * 1024 ** 2)],
      ['garbage'],
      [{ id: 1, call: 'x'.repeat(1000), args: [] }],
      many,
    ]) {
      const said = await send(lines, { ms: 30_000 });
      expect(said).toMatch(/closed\n$/); // by the daemon
      expect(said).not.toContain('"value"');
    }
    const most = [{ id: 1, call: 'jobs.create', args: [asked({ command: ['x', 'y'.repeat(200_000)] })] }];
    expect(await send(most, { ms: 60_000, first: true })).toContain('OOMTUNE_USAGE');
    await serves();
  });

  it('keeps nobody else out with connections, or with messages that never end', async () => {
    const child = mallory.start(
      [
        '--input-type=module',
        '-e',
        `import { connect } from 'node:net';
        let closed = 0;
        for (let at = 0; at < 400; at += 1) {
          const socket = connect(${JSON.stringify(machine.socket)});
          socket.on('error', () => {});
          socket.on('data', () => {});
          socket.on('close', () => { closed += 1; if (closed === 400) { console.log('all closed'); process.exit(); } });
          socket.write('{"id":1,' + 'x'.repeat(100_000));
        }`,
      ],
      { program: [process.execPath] },
    );
    let said = '';
    child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      said += text;
    });
    await serves();
    await until(() => said.includes('all closed'), 60);
    expect((await mallory.call(['status'])).code).toBe(0);
  });

  it('is told which limit it met when it is cut off', async () => {
    const client = join(ROOT, 'dist', 'cli', 'system', 'client.js');
    const met = async (work: string): Promise<{ code: string; message: string; remedy: string }> => {
      const { stdout, stderr } = await mallory.script(`
        import { connectSystem, down } from ${JSON.stringify(client)};
        const path = ${JSON.stringify(machine.socket)};
        const said = (error) => {
          const { code, message, remedy } = error.code ? error : down(path, error);
          console.log(JSON.stringify({ code, message, remedy }));
          process.exit();
        };
        const { channel } = await connectSystem(path).catch(said);
        try { ${work} } catch (error) { said(error); }
      `);
      return JSON.parse(stdout || JSON.stringify(stderr));
    };
    const calls = await met(`await Promise.all(Array.from({ length: 65 }, () => channel.call('events.listen', [])));`);
    expect(calls).toEqual({
      code: 'OOMTUNE_NOT_PERMITTED',
      message: expect.stringContaining('too many calls at a time'),
      remedy: expect.stringContaining('64 calls at a time'),
    });
    const connections = await met('for (let i = 0; i < 256; i += 1) await connectSystem(path);');
    expect(connections).toMatchObject({
      code: 'OOMTUNE_NOT_PERMITTED',
      message: expect.stringContaining('256 connections'),
    });
    await serves();
  });

  it('harms only himself with a folder or an environment that no program can start in', async () => {
    const locked = join(mallory.home, 'locked');
    await mallory.call(['-m', '0000', locked], { program: ['mkdir'] });
    const { stdout, code } = await mallory.call([
      'submit',
      '--device',
      'cpu',
      '--preset',
      'none',
      '--cwd',
      locked,
      '--',
      'true',
    ]);
    if (code === 0) expect((await mallory.call(['wait', stdout.trim()])).code).toBe(4);
    const gone = await mallory.call(
      [
        '-c',
        `mkdir gone && cd gone && rmdir ../gone && exec ${process.execPath} ${PROGRAM} submit --device cpu --preset none -- true`,
      ],
      { program: ['sh'] },
    );
    expect([0, 2, 5]).toContain(gone.code);
    const huge = await mallory.call(['submit', '--device', 'cpu', '--preset', 'none', '--', 'true'], {
      env: { HUGE: 'x'.repeat(120_000), ODD: 'a\nb=c\u001b[31m' },
    });
    expect([0, 2]).toContain(huge.code);
    await serves();
  });

  it('cannot fill the queue', async () => {
    const store = await machine.store();
    const mine = Array.from({ length: 5000 }, () => asked({ uid: mallory.uid, owner: mallory.name, state: 'held' }));
    for (let at = 0; at < mine.length; at += 500)
      await Promise.all(mine.slice(at, at + 500).map((one) => store.jobs.create(one)));
    await until(async () => (await ask('jobs.create', asked({}))).error?.code === 'OOMTUNE_NOT_PERMITTED', 30);
    expect(await alice.submit(['true'])).toMatch(/^j-/);
  });
});

function textsBelow(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .map((name) => join(folder, name))
    .filter((path) => statSync(path).isFile())
    .map((path) => readFileSync(path, 'latin1'));
}
