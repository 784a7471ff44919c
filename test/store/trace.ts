import { hash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { Store } from '../../src/store/index.js';
import { toRequest } from '../../src/store/lease-request.js';
import { ROOT } from './home.js';
import { GIB, gpu } from './samples.js';

/**
 * The scheduler's one decision, who gets a device, on made-up traces in made-up time: the scripts and the Redis are the real ones.
 * Every wait counts as a long one, and only the clock is made up: a unit of a trace's time is a second of it.
 */

export interface Job {
  id: string;
  arrives: number;
  lasts: number;
  count: number;
  /** Null: whole devices. */
  bytes: number | null;
  /** Its time limit, or what is expected of it; absent: nobody knows. */
  limit?: number;
  /** Absent: everything belongs to one. */
  user?: string;
  priority?: number;
  /** A priority that an admin gave. */
  across?: number;
}

interface Lease extends Job {
  devices: string[];
  ends: number;
}

export const TOTAL = 80 * GIB;
const DAY_MS = 24 * 3600_000;
const BEGIN = 1_700_000_000_000;

const read = (name: string) => readFileSync(join(ROOT, 'src/store/lua/lease', `${name}.lua`), 'utf8');
const PRELUDE = read('prelude');
/** The scripts with a clock of their own, which they read from a key. */
const SCRIPTS = Object.fromEntries(
  ['acquire', 'free', 'renew'].map((name) => {
    const real = `${PRELUDE}\n${read(name)}`;
    const lua = real.replace("redis.call('TIME')", "redis.call('LRANGE', 'clock', 0, 1)");
    expect(lua).not.toBe(real);
    return [name, { lua, sha: hash('sha1', lua) }];
  }),
);

export interface Rules {
  halfLifeMs?: number;
  /** GPUs that a user may have at a time. */
  most?: Record<string, number>;
}

export class Machine {
  readonly leases = new Map<string, Lease>();
  readonly began = new Map<string, number>();
  /** Device-seconds that each user has had, by the trace itself. */
  readonly had = new Map<string, number>();
  /** In the order in which they first asked. */
  waiting: Job[] = [];
  /** In milliseconds: they that ask at the same time of the trace are told apart by it. */
  clock = BEGIN;

  /** `foreign`: bytes that strangers hold of each device. */
  constructor(
    private readonly store: Store,
    readonly foreign: number[],
    private readonly rules: Rules = {},
  ) {}

  set now(time: number) {
    this.clock = BEGIN + time * 1000;
  }

  /** A script at the time of the trace. */
  async #run(name: 'acquire' | 'free' | 'renew', args: (string | number)[]): Promise<string> {
    const { leases, leaseQueue, wake, events, refused, usage } = this.store.keys;
    const keys = [leases, leaseQueue, wake, events, refused, usage];
    const { redis } = this.store.connection;
    const { lua, sha } = SCRIPTS[name] as { lua: string; sha: string };
    const clock = [Math.floor(this.clock / 1000), (this.clock % 1000) * 1000];
    await redis
      .multi()
      .del('clock')
      .rpush('clock', ...clock)
      .exec();
    const all = [keys.length, ...keys, ...args, this.rules.halfLifeMs ?? DAY_MS] as const;
    return String(
      await redis.evalsha(sha, ...all).catch((error: Error) => {
        if (!error.message.startsWith('NOSCRIPT')) throw error;
        return redis.eval(lua, ...all);
      }),
    );
  }

  async ask(job: Job, now: number): Promise<boolean> {
    const { id, user, count, priority, across } = job;
    const devices = this.foreign.map((bytes, n) => toRequest(gpu(n, bytes)));
    const share = job.bytes !== null;
    const bytes = job.bytes ?? undefined;
    const lasts = job.limit === undefined ? undefined : job.limit * 1000;
    const most = this.rules.most?.[user ?? ''];
    const request = { devices, count, bytes, share, lasts, lenient: false, priority, across, most };
    const record = { host: 'h', boot: 'b', instance: id, process: { pid: 1, start: '1' }, bytes, share, user };
    const reply = JSON.parse(
      await this.#run('acquire', [id, JSON.stringify(request), JSON.stringify(record), 1e9, -1, '[]']),
    );
    if (reply.granted === undefined) return false;
    this.leases.set(id, { ...job, devices: reply.granted, ends: now + job.lasts });
    this.began.set(id, now);
    this.waiting = this.waiting.filter((one) => one !== job);
    return true;
  }

  async free(id: string): Promise<void> {
    const { user = '', count, bytes, lasts } = this.leases.get(id) as Lease;
    this.had.set(user, (this.had.get(user) ?? 0) + count * (bytes === null ? 1 : bytes / TOTAL) * lasts);
    this.leases.delete(id);
    await this.#run('free', [id, '', '']);
  }

  /** As leases' holders and those who wait do every few seconds, while nothing happens in the trace. */
  async renew(): Promise<void> {
    const { redis } = this.store.connection;
    for (const { id } of this.waiting) {
      const ticket = JSON.parse((await redis.hget(this.store.keys.leaseQueue, id)) ?? 'null');
      if (ticket === null) continue;
      ticket.expires_at = this.clock + 15_000;
      await redis.hset(this.store.keys.leaseQueue, id, JSON.stringify(ticket));
    }
    for (const id of this.leases.keys()) await this.#run('renew', [id, id, 1e9]);
  }

  /** Everybody who waits asks, in any order, until nobody gets anything more. */
  async settle(now: number, draw: () => number): Promise<void> {
    for (let granted = true; granted; ) {
      granted = false;
      for (const job of [...this.waiting].sort(() => draw() - 0.5)) granted = (await this.ask(job, now)) || granted;
    }
  }

  /** What counts of each user's usage now, as it is stored. */
  async usage(): Promise<Map<string, number>> {
    const all = await this.store.connection.redis.hgetall(this.store.keys.usage);
    const decayed = (text: string): number => {
      const { seconds, at } = JSON.parse(text);
      return seconds * 0.5 ** ((this.clock - at) / (this.rules.halfLifeMs ?? DAY_MS));
    };
    return new Map(Object.entries(all).map(([user, text]) => [user, decayed(text)]));
  }

  /** Who waits, in the order in which they have a right to devices. */
  async inLine(): Promise<Job[]> {
    const used = await this.usage();
    const turn = new Map(this.waiting.map((job, at) => [job, at]));
    const first = (user: string) => this.waiting.findIndex((job) => (job.user ?? '') === user);
    return [...this.waiting].sort((a, b) => {
      const [one, two] = [a.user ?? '', b.user ?? ''];
      const by = [(b.across ?? 0) - (a.across ?? 0)];
      if (one !== two) by.push((used.get(one) ?? 0) - (used.get(two) ?? 0), first(one) - first(two));
      by.push((b.priority ?? 0) - (a.priority ?? 0), (turn.get(a) ?? 0) - (turn.get(b) ?? 0));
      return by.find((difference) => difference !== 0) ?? 0;
    });
  }

  /** Devices that would do for the job, beside these leases. */
  fitting(job: Job, leases: Iterable<Lease>): number[] {
    const all = [...leases];
    return this.foreign.flatMap((foreign, n) => {
      const here = all.filter(({ devices }) => devices.includes(`GPU-${n}`));
      if (job.bytes === null) return here.length === 0 && foreign <= 0.1 * TOTAL ? [n] : [];
      if (here.some(({ bytes }) => bytes === null)) return [];
      const held = here.reduce((sum, { bytes }) => sum + (bytes ?? 0), 0);
      return TOTAL - foreign - held >= job.bytes ? [n] : [];
    });
  }

  most(user: string | undefined): number {
    return this.rules.most?.[user ?? ''] ?? Infinity;
  }

  /** Devices that the user has something of. */
  held(user: string | undefined): number {
    return new Set([...this.leases.values()].flatMap((one) => (one.user === user ? one.devices : []))).size;
  }

  startable(job: Job): boolean {
    return this.fitting(job, []).length >= job.count && job.count <= this.most(job.user);
  }

  /** When the job can start at the latest, if nothing more is begun before it: by the limits of what runs. */
  earliest(job: Job, now: number): number {
    const held = [...this.leases.values()];
    const latest = ({ id, limit }: Lease) => (limit === undefined ? Infinity : (this.began.get(id) ?? now) + limit);
    const times = [now, ...held.map(latest)].sort((a, b) => a - b);
    const free = (time: number) =>
      this.fitting(
        job,
        held.filter((lease) => latest(lease) > time),
      ).length;
    return times.find((time) => time >= now && free(time) >= job.count) ?? Infinity;
  }

  /**
   * Jobs that wait although there is room for them and their users may have it, beyond what is kept for those who go first, or that
   * would have ended before any of these could start.
   */
  async wasted(now: number): Promise<string[]> {
    const found: string[] = [];
    const keptOf = new Map<string | undefined, number>();
    let kept = 0;
    let before = Infinity;
    for (const job of await this.inLine()) {
      const fitting = this.fitting(job, this.leases.values()).length;
      const over = now + (job.limit ?? Infinity) < before;
      const room = this.most(job.user) - this.held(job.user);
      const may = room - (keptOf.get(job.user) ?? 0) >= job.count;
      if (may && (fitting - kept >= job.count || (fitting >= job.count && over))) found.push(job.id);
      if (!this.startable(job)) continue;
      keptOf.set(job.user, (keptOf.get(job.user) ?? 0) + job.count);
      if (room < job.count) continue;
      kept += job.count;
      const start = this.earliest(job, now);
      before = Math.min(before, start === Infinity ? now : start); // nobody knows when: at any moment
    }
    return found;
  }

  /** On each device no more than it has, and for nobody more devices than allowed. */
  check(now: number): void {
    for (const [n, foreign] of this.foreign.entries()) {
      const here = [...this.leases.values()].filter(({ devices }) => devices.includes(`GPU-${n}`));
      const held = here.reduce((sum, { bytes }) => sum + (bytes ?? TOTAL - foreign), 0);
      expect(held + foreign, `GPU-${n} at ${now}`).toBeLessThanOrEqual(TOTAL);
    }
    for (const { user } of this.leases.values())
      expect(this.held(user), `GPUs of ${user} at ${now}`).toBeLessThanOrEqual(this.most(user));
  }
}

/** Random, the same in every run. */
export function drawer(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Plays the jobs to the end; returns when each started, without those that never could. `look` is called at each step. */
export async function play(
  machine: Machine,
  jobs: Job[],
  draw: () => number,
  look: (now: number) => void | Promise<void> = () => {},
): Promise<Map<string, number>> {
  const coming = [...jobs].sort((a, b) => a.arrives - b.arrives);
  const users = new Set(jobs.map(({ user }) => user)).size;
  /** When who is the first in line was to start at the latest. */
  const promised = new Map<string, number>();
  for (;;) {
    const times = [...machine.leases.values()].map(({ ends }) => ends);
    if (coming[0] !== undefined) times.push(coming[0].arrives);
    if (times.length === 0) return machine.began;
    const now = Math.min(...times);
    machine.now = now;
    for (const lease of [...machine.leases.values()]) if (lease.ends <= now) await machine.free(lease.id);
    if (users > 1) await machine.renew();
    while (coming[0] !== undefined && coming[0].arrives <= now) {
      const job = coming.shift() as Job;
      machine.waiting.push(job);
      await machine.ask(job, now);
      machine.clock += 1; // they are told apart by the time at which they first asked
    }
    await machine.settle(now, draw);
    expect(await machine.wasted(now), `at ${now}`).toEqual([]);
    machine.check(now);
    await look(now);
    // With several users who is first may change with each thing that is used
    if (users > 1) continue;
    for (const [id, by] of promised) expect(machine.began.get(id) ?? now, `the start of ${id}`).toBeLessThanOrEqual(by);
    const first = machine.waiting.find((job) => machine.startable(job));
    const start = first === undefined ? Infinity : machine.earliest(first, now);
    if (first !== undefined && start < (promised.get(first.id) ?? Infinity)) promised.set(first.id, start);
  }
}

export const one = (id: string, arrives: number, changes: Partial<Job> = {}): Job => ({
  id,
  arrives,
  lasts: 10,
  count: 1,
  bytes: null,
  ...changes,
});
