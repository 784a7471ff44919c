import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import type { JobState } from '../../src/contract/job.js';
import { hostName } from '../../src/store/index.js';
import { ROOT, startRedis, until, useHome } from '../store/home.js';
import { job, recommendation } from '../store/samples.js';
import { noPromtool, promtool } from './promtool.js';
import { Dashboard } from './server.js';

useHome();
let dashboard: Dashboard;

beforeAll(async () => {
  dashboard = await Dashboard.start();
});
afterAll(async () => dashboard.close());

const read = (...path: string[]): string => readFileSync(join(ROOT, ...path), 'utf8');

/** Value of the sample whose name and labels are written so; undefined: there is none. */
async function value(sample: string, from = dashboard): Promise<number | undefined> {
  const { text } = await from.ask('/metrics');
  const line = text.split('\n').find((one) => one.startsWith(`${sample} `));
  return line === undefined ? undefined : Number(line.slice(sample.length + 1));
}

describe('/metrics', () => {
  it('asks for the token, unless it was opened', async () => {
    expect((await dashboard.ask('/metrics', { known: false })).status).toBe(401);
    const answer = await dashboard.ask('/metrics');
    expect(answer.headers['content-type']).toBe('text/plain; version=0.0.4; charset=utf-8');
    const open = await Dashboard.start({ metricsOpen: true });
    expect((await open.ask('/metrics', { known: false })).text).toContain('oomtune_redis_up 1');
    expect((await open.ask('/api/machine', { known: false })).status).toBe(401);
    await open.close();
  });

  it.skipIf(noPromtool)('is what Prometheus takes, by its own checker', async () => {
    const { text } = await dashboard.ask('/metrics');
    expect(promtool(['check', 'metrics'], {}, text)).toEqual({ code: 0, said: '' });
    expect(
      promtool(['check', 'metrics'], {}, `${text}\n# HELP x_total x\n# TYPE x_total gauge\nx_total 1\n`).code,
    ).toBe(3);
  });

  it('tells of devices, in bytes', async () => {
    const [device] = (await (await import('../../src/runtime/index.js')).createRuntime().devices()).slice(-1);
    const labels = `{device="cpu",model="${device?.model}"}`;
    expect(await value(`oomtune_device_memory_total_bytes${labels}`)).toBe(device?.total_bytes);
    expect(await value(`oomtune_device_memory_used_bytes${labels}`)).toBeGreaterThan(0);
    expect(await value(`oomtune_device_fault${labels}`)).toBe(0);
  });

  it('counts jobs by state, and what becomes of those of this host', async () => {
    const { jobs, events, recommendations } = dashboard.store;
    const before = (await value('oomtune_queue_wait_seconds_count')) ?? 0;
    const run = async (host: string | null, states: JobState[]): Promise<string> => {
      const record = job({ host });
      await jobs.create(record);
      for (const state of states) {
        const failure = state === 'failed' ? { class: 'device_oom' as const, evidence: null, fields: {} } : null;
        await jobs.patch(record.job, { state, failure });
      }
      return record.job;
    };
    const ours = await run(hostName(), ['searching', 'running', 'succeeded']);
    await run(hostName(), ['searching', 'running', 'failed']);
    await run(hostName(), ['searching', 'exhausted']);
    await run('another-host', ['searching', 'running', 'failed']);
    await run(hostName(), ['searching']);
    await run(null, []);
    const [probe] = recommendation().probes;
    for (const outcome of ['fit', 'fit', 'device_oom', 'made-up'] as const) {
      await events.add({ type: 'probe', job: ours, probe: { ...probe, outcome } as never });
    }
    await recommendations.put(recommendation(), ours);
    await recommendations.demote(recommendation().key, 500, ours);
    await until(async () => (await value('oomtune_recommendations_demoted_total')) === 1);
    await until(async () => (await value('oomtune_jobs_ended_total{state="exhausted"}')) === 1);
    expect(await value('oomtune_jobs{state="searching"}')).toBe(1);
    expect(await value('oomtune_jobs{state="queued"}')).toBe(1);
    expect(await value('oomtune_jobs{state="running"}')).toBe(0);
    expect(await value('oomtune_queue_oldest_seconds')).toBeGreaterThan(0);
    expect(await value('oomtune_jobs_ended_total{state="succeeded"}')).toBe(1);
    expect(await value('oomtune_jobs_ended_total{state="failed"}')).toBe(1); // the other host counts its own
    expect(await value('oomtune_job_failures_total{class="device_oom"}')).toBe(1);
    expect(await value('oomtune_probes_total{outcome="fit"}')).toBe(2);
    expect(await value('oomtune_probes_total{outcome="device_oom"}')).toBe(1);
    expect(await value('oomtune_search_duration_seconds_count{result="found"}')).toBe(2);
    expect(await value('oomtune_search_duration_seconds_count{result="exhausted"}')).toBe(1);
    expect(await value('oomtune_queue_wait_seconds_count')).toBe(before + 4);
    expect(await value('oomtune_recommendations')).toBe(1);
  });

  it('has no label that grows with jobs, keys or names', async () => {
    // Node's own metrics have labels too (kinds of handles, of garbage collection): theirs come and go.
    const ours = async () => ((await dashboard.ask('/metrics')).text.match(/^oomtune_\w+(\{[^}]*\})?/gm) ?? []).sort();
    const before = await ours();
    for (let n = 0; n < 30; n += 1) {
      const record = job({ name: `name-${n}`, host: hostName(), key: `key-${n}` });
      await dashboard.store.jobs.create(record);
      await dashboard.store.jobs.patch(record.job, { state: 'failed' });
    }
    await until(async () => ((await value('oomtune_jobs_ended_total{state="failed"}')) ?? 0) >= 30);
    expect(await ours()).toEqual(before);
    expect(before.length).toBeGreaterThan(20);
    const { text } = await dashboard.ask('/metrics');
    expect(text).not.toMatch(/j-[a-z0-9]{8}|name-\d|key-\d|made-up/);
  });

  it('says that Redis is away, and nothing that it would have to ask it for', async () => {
    const redis = await startRedis();
    const lonely = await Dashboard.start({}, `redis://127.0.0.1:${redis.port}`);
    expect(await value('oomtune_redis_up', lonely)).toBe(1);
    expect(await value('oomtune_leases', lonely)).toBe(0);
    redis.child.kill('SIGSTOP'); // a Redis that hangs
    expect(await value('oomtune_redis_up', lonely)).toBe(0);
    expect(await value('oomtune_leases', lonely)).toBeUndefined();
    expect(await value('oomtune_jobs{state="queued"}', lonely)).toBeUndefined();
    expect((await lonely.ask('/api/machine')).status).toBe(503);
    redis.child.kill('SIGCONT');
    await until(async () => (await value('oomtune_redis_up', lonely)) === 1);
    await redis.stop(); // one that is gone
    await until(async () => (await value('oomtune_redis_up', lonely)) === 0);
    await lonely.close();
  });
});

describe('the names of metrics', () => {
  let all: string[] = [];
  let ours: string[] = [];
  beforeAll(async () => {
    // as they are served
    all = [...(await dashboard.ask('/metrics')).text.matchAll(/^# TYPE (\w+) /gm)].map(([, name]) => name as string);
    ours = all.filter((name) => name.startsWith('oomtune_')).sort();
  });
  const page = read('docs', 'reference', 'metrics.md');
  /** The metric that a name in an expression stands for: a histogram has three. */
  const known = (name: string): boolean => all.includes(name) || all.includes(name.replace(/_(bucket|sum|count)$/, ''));
  const used = (text: string): string[] => [...new Set(text.match(/\b(oomtune|process|nodejs)_[a-z0-9_]+/g) ?? [])];

  it('are those of the reference', () => {
    const rows = [...page.matchAll(/^\| `(oomtune_\w+)` \| (gauge|counter|histogram) \|/gm)].map(([, name]) => name);
    expect(rows.sort()).toEqual(ours);
  });

  it('follow the rules: base units, `_total` for counters', () => {
    for (const name of ours) expect(name).not.toMatch(/_(ms|millis|mib|gib|mb|gb|minutes|hours|percent)(_|$)/);
    const counters = [...page.matchAll(/^\| `(\w+)` \| counter/gm)].map(([, name]) => name as string);
    expect(counters.length).toBeGreaterThan(4);
    for (const name of ours) expect(name.endsWith('_total'), name).toBe(counters.includes(name));
  });

  it('are the ones that alerts ask for', () => {
    const rules = parse(read('deploy', 'prometheus-alerts.yaml')).groups[0].rules as { alert: string; expr: string }[];
    expect(rules.length).toBeGreaterThan(15);
    for (const { alert, expr } of rules) {
      for (const name of used(expr)) expect(known(name), `${alert}: ${name}`).toBe(true);
    }
  });

  it('are the ones that the example dashboard shows, all of them', () => {
    const board = JSON.parse(read('deploy', 'grafana-dashboard.json')) as { panels: { targets: { expr: string }[] }[] };
    const shown = board.panels.flatMap(({ targets }) => targets.flatMap(({ expr }) => used(expr)));
    for (const name of shown) expect(known(name), name).toBe(true);
    const bare = new Set(shown.map((name) => name.replace(/_bucket$/, '')));
    expect(ours.filter((name) => !bare.has(name))).toEqual([]);
  });
});
