import { setTimeout as delay } from 'node:timers/promises';
import type { Holder } from '../contract/holder.js';
import type { Device } from '../contract/launch.js';
import { type LeaseRecord, leaseText } from '../contract/state.js';
import { pidScope, startTime } from './process-identity.js';

/** Parses a lease; null: unreadable, and the next script sets it aside. */
export function readLease(owner: string, text: string): LeaseRecord | null {
  try {
    const { supervisors, beside, bytes, ...record } = leaseText.parse(JSON.parse(text));
    // Lua writes an empty list as {}
    const lists = {
      supervisors: Array.isArray(supervisors) ? supervisors : [],
      beside: Array.isArray(beside) ? beside : [],
    };
    return { ...record, ...lists, owner, bytes: bytes ?? null, text };
  } catch {
    return null;
  }
}

/** What these leases reserve of a device of `total` bytes, and for whom, the oldest first. */
export function reservedBy(leases: LeaseRecord[], total: number): { reserved_bytes: number; holders: Holder[] } {
  return {
    reserved_bytes: leases.reduce((sum, { bytes }) => sum + (bytes ?? total), 0),
    holders: leases
      .toSorted((a, b) => a.taken_at - b.taken_at)
      .map(({ owner, user, bytes, share }) => ({ job: owner, owner: user ?? null, bytes, share })),
  };
}

export function ownerLives(lease: LeaseRecord): boolean {
  return lease.boot === pidScope() && startTime(lease.process.pid) === lease.process.start;
}

/** Whether a supervisor of the job lives, or any process with the job's id in its environment. */
export async function jobLives(lease: LeaseRecord): Promise<boolean> {
  if (lease.supervisors.some(({ pid, start }) => startTime(pid) === start)) return true;
  const { readdir, readFile } = await import('node:fs/promises');
  const mark = `OOMTUNE_JOB_ID=${lease.owner}\0`;
  for (const name of await readdir('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    const environment = await readFile(`/proc/${name}/environ`, 'latin1').catch(() => '');
    if (environment.includes(mark) && startTime(Number(name)) !== null) return true;
    await delay(0);
  }
  return false;
}

/** Whether a GPU still holds memory of a process of ours without another lease: drivers free it late. */
export function memoryHeld(lease: LeaseRecord, devices: Device[]): boolean {
  const pids = new Set(lease.supervisors.map((one) => one.pid).concat(lease.process.pid));
  return devices
    .filter((device) => lease.devices.some(({ uuid }) => uuid === device.uuid))
    .some((device) => device.processes.some((one) => pids.has(one.pid) && one.used_bytes > 0));
}
