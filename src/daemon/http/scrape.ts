import { z } from 'zod';
import { within } from '../../common/within.js';
import { readJson } from '../../contract/fields.js';
import type { JobState } from '../../contract/job.js';
import type { Runtime } from '../../runtime/types.js';
import type { Store } from '../../store/index.js';
import type { Sampler } from '../observe/sampler.js';
import { userShares } from '../user-shares.js';
import type { Machine } from './machine.js';
import type { Metrics } from './metrics.js';

const LIVE: JobState[] = ['queued', 'held', 'searching', 'running'];
const REDIS_MS = 2000;
const DAY_MS = 24 * 3600_000;

/** Reads the current state and returns all metrics as text; concurrent requests share one reading. */
export class Scrape {
  #refused = 0;
  #running: Promise<string> | null = null;

  constructor(
    private readonly parts: { store: Store; machine: Machine; sampler: Sampler; metrics: Metrics; runtime: Runtime },
    version: string,
  ) {
    let driver = '';
    try {
      driver = parts.runtime.versions().driver ?? '';
    } catch {} // told by `doctor`
    parts.metrics.build.set({ version, node: process.versions.node, driver }, 1);
  }

  text(): Promise<string> {
    this.#running ??= this.#scrape().finally(() => {
      this.#running = null;
    });
    return this.#running;
  }

  async #scrape(): Promise<string> {
    const { metrics, sampler } = this.parts;
    const up = await within(REDIS_MS, null, () => this.#readRedis()).then(
      () => true,
      () => false,
    );
    metrics.redisUp.set(up ? 1 : 0);
    if (!up) {
      // Figures from before an outage must not look current
      const { ownerUsed, ownerShare, ownerGpus } = metrics;
      for (const one of [
        metrics.jobs,
        metrics.ownerJobs,
        ownerUsed,
        ownerShare,
        ownerGpus,
        metrics.hosts,
        metrics.reserved,
      ])
        one.reset();
      for (const one of [metrics.oldest, metrics.leases, metrics.leaseWaiters, metrics.recommendations]) one.remove();
    }
    await this.#readDevices().catch(() => {
      for (const one of [metrics.total, metrics.used, metrics.foreign, metrics.fault]) one.reset();
    });
    metrics.refused.inc(sampler.refused - this.#refused);
    this.#refused = sampler.refused;
    return metrics.registry.metrics();
  }

  async #readRedis(): Promise<void> {
    const { store, metrics, machine } = this.parts;
    if (!store.connection.ready) throw new Error('Redis is away');
    const counts = await store.counts();
    await this.#readJobs();
    await this.#readShares();
    const { hosts, devices } = await machine.view();
    const leases = await store.leasing.list();
    metrics.leaseWaiters.set(counts.leaseWaiters);
    metrics.recommendations.set(counts.recommendations);
    metrics.refusedRecords.set(counts.refusedRecords);
    metrics.leases.set(leases.length);
    for (const alive of [true, false]) {
      const count = hosts.filter((host) => host.alive === alive && Date.now() - Date.parse(host.seen) < DAY_MS).length;
      metrics.hosts.set({ alive: String(alive) }, count);
    }
    metrics.reserved.reset();
    for (const { id, model, uuid, reserved_bytes } of devices) {
      if (uuid !== null) metrics.reserved.set({ device: id, model }, reserved_bytes);
    }
  }

  async #readShares(): Promise<void> {
    const { ownerUsed, ownerShare, ownerGpus } = this.parts.metrics;
    const shares = await userShares(this.parts.store);
    for (const one of [ownerUsed, ownerShare, ownerGpus]) one.reset();
    for (const { user: owner, device_seconds, share, gpus } of shares) {
      ownerUsed.set({ owner }, device_seconds);
      ownerShare.set({ owner }, share);
      ownerGpus.set({ owner }, gpus);
    }
  }

  async #readJobs(): Promise<void> {
    const { store, metrics } = this.parts;
    const since = await store.jobs.liveSince();
    const counts = new Map<string, number>(LIVE.map((state) => [state, 0]));
    let oldest = Number.POSITIVE_INFINITY;
    const states = await store.jobs.fields([...since.keys()], ['state', 'owner']);
    metrics.ownerJobs.reset();
    for (const [at, submitted] of [...since.values()].entries()) {
      const state = states[at]?.[0] ?? null;
      const known = counts.get(String(state));
      if (known === undefined) continue;
      counts.set(String(state), known + 1);
      const owner = readJson(z.string(), states[at]?.[1]) ?? 'unknown';
      metrics.ownerJobs.inc({ owner, state: String(state) });
      if (state === 'queued') oldest = Math.min(oldest, submitted);
    }
    for (const [state, count] of counts) metrics.jobs.set({ state }, count);
    metrics.oldest.set(Number.isFinite(oldest) ? Math.max(0, Date.now() - oldest) / 1000 : 0);
  }

  async #readDevices(): Promise<void> {
    const { machine, metrics } = this.parts;
    const devices = await machine.devices();
    for (const one of [metrics.total, metrics.used, metrics.foreign, metrics.fault]) one.reset();
    for (const { id, model, total_bytes, used_bytes, processes, fault } of devices) {
      const labels = { device: id, model };
      const foreign = processes.filter(({ ours }) => !ours).reduce((sum, one) => sum + one.used_bytes, 0);
      metrics.total.set(labels, total_bytes);
      metrics.used.set(labels, used_bytes);
      metrics.foreign.set(labels, foreign);
      metrics.fault.set(labels, fault === null ? 0 : 1);
    }
  }
}
