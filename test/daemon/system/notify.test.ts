import { existsSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { until } from '../../store/home.js';
import { Machine, noUsers, type User } from './machine.js';

describe.skipIf(noUsers !== null)('notifications with one daemon for all users', () => {
  let machine: Machine;
  let alice: User;
  let bob: User;

  beforeAll(async () => {
    machine = new Machine();
    alice = machine.user();
    bob = machine.user();
    await machine.start();
  });
  afterAll(() => machine.close());

  it('are told by the submitter, with no rights but hers', async () => {
    const told = join(alice.home, 'told');
    const command = `(id -u; id -G; echo "$OF_ALICE"; cat) > ${told}.new; mv ${told}.new ${told}`;
    const job = await alice.submit(['true'], ['--notify', command], { env: { OF_ALICE: 'a value of hers' } });
    await until(() => existsSync(told), 60);
    const [uid, groups, value, event = ''] = readFileSync(told, 'utf8').split('\n');
    const asAlice = (await alice.call(['-G'], { program: ['id'] })).stdout.trim();
    expect([uid, groups, value]).toEqual([String(alice.uid), asAlice, 'a value of hers']);
    expect(statSync(told).uid).toBe(alice.uid);
    expect(JSON.parse(event)).toMatchObject({ event: 'ended', job, owner: alice.name, state: 'succeeded' });
    const store = await machine.store();
    await until(async () => (await store.notify.owed()).size === 0);
  });

  it('that fail are told to their owner alone', async () => {
    const job = await bob.submit(['true'], ['--notify', `echo 'of bob alone' >&2; exit 3`]);
    const said = async (user: User) => (await user.call(['status', job])).stdout;
    await until(async () => (await said(bob)).includes('notification'), 90);
    expect(await said(bob)).toMatch(/notification +ended: the command ended with exit code 3: of bob alone/);
    expect(await said(alice)).not.toContain('of bob alone');
  });
});
