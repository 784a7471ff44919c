import { chmodSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { eightGpus } from '../../native/eight-gpus.js';
import { until } from '../../store/home.js';
import { drawer } from '../../store/trace.js';
import { CAROLS, contentOf, GPUS, PEOPLE, type Person, turns, type Wish, watchIdle, wishes } from '../lab.js';
import { Machine, noUsers, type User } from './machine.js';

/** A lab's day: real users of the machine, its real daemon and Redis, real clients and processes. Only the GPUs are stand-ins. */
describe.skipIf(noUsers !== null)('six real users with forty jobs on eight GPUs', () => {
  let machine: Machine;
  const users = new Map<Person, User>();
  let notes: string;

  beforeAll(async () => {
    machine = new Machine();
    notes = join(machine.root, 'notes');
    mkdirSync(notes);
    chmodSync(notes, 0o1777);
    for (const person of Object.keys(PEOPLE) as Person[]) users.set(person, machine.user());
    const rules = join(machine.root, 'fair-share.yaml');
    writeFileSync(rules, `half_life: 24h\nusers: {${users.get('carol')?.name}: {gpus: ${CAROLS}}}\n`);
    const native = await eightGpus(join(machine.root, 'native'));
    await machine.start([], { OOMTUNE_FAIR_SHARE: rules, OOMTUNE_NATIVE: native });
  }, 600_000);
  afterAll(() => machine.close());

  const of = (person: Person) => users.get(person) as User;

  /** Prints what it has of everybody's secrets and of everybody's files, and notes when it begins and ends, and where. */
  const job = (): string => {
    const files = [...users.values()].map(({ home }) => `${home}/secret`).join(' ');
    const note = (what: string) => `echo "$(date +%s.%N) ${what} $OOMTUNE_JOB_ID $OOMTUNE_DEVICE" >> ${notes}/$(id -u)`;
    return `env | grep SECRET_OF_; cat ${files} 2>/dev/null; ${note('begin')}; sleep "$0"; ${note('end')}`;
  };

  const send = async ({ person, seconds, gpus }: Wish): Promise<string> => {
    const args = ['--device', 'cuda', '--gpus', String(gpus), '--preset', 'none', '--retries', '0'];
    const { code, stdout, stderr } = await of(person).call(
      ['submit', ...args, '--name', `${person}-${gpus}`, '--', '/bin/sh', '-c', job(), String(seconds)],
      { env: { [`SECRET_OF_${person}`]: `only-${person}-knows`, OOMTUNE_NATIVE: join(machine.root, 'native') } },
    );
    if (code !== 0) throw new Error(`not submitted: ${stderr}`);
    return stdout.trim();
  };

  it('nobody starves, nobody sees what is not his, and no GPU idles', async () => {
    for (const [person, user] of users) {
      const path = join(user.home, 'secret');
      const made = await user.call(['-c', `umask 077; echo file-of-${person}-known > ${path}`], { program: ['sh'] });
      expect([made.code, statSync(path).uid]).toEqual([0, user.uid]);
    }
    const store = await machine.store();
    const stop = watchIdle(store, (name) => (name === of('carol').name ? CAROLS : GPUS));
    const sent: (Wish & { id: string })[] = [];
    const wished = wishes(drawer(2026)).map((wish) => ({ ...wish, seconds: 6 * wish.seconds })); // clients take their time to start
    await Promise.all(
      [...users.keys()].map(async (person) => {
        for (const wish of wished) if (wish.person === person) sent.push({ ...wish, id: await send(wish) });
      }),
    );
    expect(sent).toHaveLength(40);
    const all = () => Promise.all(sent.map(async ({ id }) => store.jobs.get(id)));
    await until(async () => (await all()).every((one) => one?.ended_at != null), 400);
    const longest = await stop();

    const jobs = await all();
    expect(jobs.map((one) => [one?.state, one?.reason])).toEqual(sent.map(() => ['succeeded', null]));
    expect(jobs.map((one) => one?.owner)).toEqual(sent.map(({ person }) => of(person).name));
    expect(jobs.map((one) => new Set(one?.devices).size)).toEqual(sent.map(({ gpus }) => gpus));
    const lines = [...users.values()].flatMap(({ uid }) => {
      const path = join(notes, String(uid));
      expect(statSync(path).uid).toBe(uid); // its jobs were this user's, whoever's daemon that is
      return readFileSync(path, 'utf8').trim().split('\n');
    });
    const { began, most } = turns(lines);
    expect(new Set(began).size).toBe(40);
    expect(most(new Set(sent.flatMap(({ id, person }) => (person === 'carol' ? [id] : []))))).toBe(CAROLS);
    const turnsOf = (person: Person) => sent.flatMap((one) => (one.person === person ? [began.indexOf(one.id)] : []));

    // Nobody's data seen: by another's job, by another's client, or in Redis
    for (const { id, person } of sent)
      expect(machine.textOf(id, of(person)).trim().split('\n')).toEqual([
        `SECRET_OF_${person}=only-${person}-knows`,
        `file-of-${person}-known`,
      ]);
    const frank = of('frank');
    const theirs = sent.filter(({ person }) => person !== 'frank').map(({ id }) => id);
    for (const args of [
      ['status', '--json'],
      ['logs', theirs[0] as string],
      ['explain', '--json', theirs[1] as string],
    ]) {
      const { stdout, stderr } = await frank.call(args);
      expect(stdout + stderr, args.join(' ')).not.toMatch(/only-(?!frank)\w+-knows|file-of-(?!frank)/);
    }
    const { redis } = store.connection;
    for (const key of await redis.keys(`${store.keys.prefix}:*`)) {
      if (key.startsWith(store.keys.log(''))) continue; // what a job prints is its log, and only root reaches this Redis
      expect(JSON.stringify(await contentOf(redis, key)), key).not.toMatch(/only-\w+-knows/);
    }

    expect(longest).toBeLessThan(10_000);
    const last = Math.max(...turnsOf('alice'));
    for (const person of ['dave', 'erin', 'frank'] as const)
      expect(Math.max(...turnsOf(person)), person).toBeLessThan(last);
    expect([...(await store.usage.list()).keys()].sort()).toEqual([...users.values()].map(({ name }) => name).sort());
    expect(await store.leasing.list()).toEqual([]);
  }, 600_000);
});
