import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { PYTHON } from '../../cli/oomtune.js';
import { until } from '../../store/home.js';
import { ended, Machine, noUsers, type User } from './machine.js';

const PLAIN = ['--device', 'cpu', '--budget', '300MiB'];

/** What runs in the foreground is not lost with the daemon, however that ends. */
describe.skipIf(noUsers !== null)('foreground commands whose daemon is killed and started again', () => {
  let machine: Machine;
  let alice: User;

  beforeAll(async () => {
    machine = new Machine();
    alice = machine.user();
    await machine.start();
  });
  afterAll(() => machine.close());

  const leases = async (): Promise<number> => (await (await machine.store()).leasing.list()).length;
  const go = async (): Promise<void> => {
    expect((await alice.call([join(alice.home, 'go')], { program: ['touch'] })).code).toBe(0);
  };

  it('train on under their lease, which ends with them', async () => {
    const begun = join(alice.home, 'begun');
    const wait = `touch ${begun}; while ! [ -e ${alice.home}/go ]; do sleep 0.1; done; echo trained`;
    const command = ended(alice.start(['run', '--no-tune', ...PLAIN, '--', 'sh', '-c', wait]));
    await until(() => existsSync(begun), 60);
    await machine.stop('SIGKILL');
    await machine.start();
    expect(await leases()).toBe(1);
    await go();
    const { code, stdout, stderr } = await command;
    expect([code, stdout, stderr]).toEqual([0, 'trained\n', expect.stringContaining('was restarted meanwhile')]);
    await until(async () => (await leases()) === 0, 60);
  });

  it('record what they find at the next daemon', async () => {
    await alice.call([join(alice.home, 'go')], { program: ['rm'] });
    const script = join(machine.root, 'train.py');
    const begun = join(alice.home, 'searching');
    writeFileSync(
      script,
      'import os, time\nimport torch\nfrom torch.utils.data import DataLoader, TensorDataset\n' +
        `open('${begun}', 'w').close()\nwhile not os.path.exists('${alice.home}/go'):\n    time.sleep(0.1)\n` +
        'data = TensorDataset(torch.randn(4096, 64), torch.randn(4096, 1))\nmodel = torch.nn.Linear(64, 1)\n' +
        'optimizer = torch.optim.SGD(model.parameters(), lr=0.01)\n' +
        'for x, y in DataLoader(data, batch_size=64):\n' +
        '    loss = ((model(x) - y) ** 2).mean()\n    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n',
    );
    const find = ['find-batch', ...PLAIN, '--name', 'restarted', '--max-batch', '256', '--', PYTHON, script];
    const command = ended(alice.start(find, { env: { OOMTUNE_PYTHON: PYTHON } }));
    await until(() => existsSync(begun), 60);
    await machine.stop('SIGKILL');
    await go();
    await machine.start();
    const { code, stderr } = await command;
    expect([code, stderr]).toEqual([0, expect.stringContaining('was restarted meanwhile')]);
    const known = await alice.json<{ recommendations: unknown[] }>(['recommend', 'restarted']);
    expect(known.recommendations).toMatchObject([{ owner: alice.name }]);
    await until(async () => (await leases()) === 0, 60);
  });

  it('and jobs wait until its Redis takes what they have found', async () => {
    const script = join(machine.root, 'short.py');
    writeFileSync(
      script,
      'import time, torch\nfrom torch.utils.data import DataLoader, TensorDataset\n' +
        'model = torch.nn.Linear(64, 1)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.01)\n' +
        'for (x,) in DataLoader(TensorDataset(torch.randn(2048, 64)), batch_size=64):\n' +
        '    optimizer.zero_grad()\n    model(x).mean().backward()\n    optimizer.step()\n    time.sleep(0.05)\n',
    );
    const { redis } = (await machine.store()).connection;
    const given = [...PLAIN, '--max-batch', '256'];
    const env = { OOMTUNE_PYTHON: PYTHON };
    const child = alice.start(['find-batch', '--json', ...given, '--name', 'waits', '--', PYTHON, script], { env });
    let said = '';
    child.stderr?.on('data', (text) => {
      said += text;
    });
    const command = ended(child);
    await until(() => said.includes('fit'), 60);
    await redis.config('SET', 'min-replicas-to-write', '1');
    await until(() => said.includes('it has too few replicas to write'), 60);
    await redis.config('SET', 'min-replicas-to-write', '0');
    expect(await command).toMatchObject({ code: 0 });
    expect((await (await machine.store()).recommendations.find('waits')).length).toBe(1);

    const id = (
      await alice.call(['submit', ...given, '--effective-batch', '64', '--name', 'job', '--', PYTHON, script], { env })
    ).stdout.trim();
    const { jobs, recommendations } = await machine.store();
    await until(async () => ((await jobs.get(id))?.journal.length ?? 0) > 0, 90);
    await redis.config('SET', 'min-replicas-to-write', '1');
    await new Promise((resolve) => setTimeout(resolve, 8000));
    await redis.config('SET', 'min-replicas-to-write', '0');
    await until(async () => (await jobs.get(id))?.ended_at != null, 90);
    expect(await jobs.get(id)).toMatchObject({ state: 'succeeded' });
    expect((await recommendations.find('job')).length).toBe(1);
  }, 240_000);
});
