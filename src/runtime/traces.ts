/** Finds a launch without its folder, by processes and control groups that carry its name. */
import { existsSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { pids, readStat } from '../common/process.js';
import { namesIn, systemText } from '../common/regular-file.js';
import { processesOf } from './marks.js';

const SUPERVISOR = 'oomtune-supervisor';

/** Living processes started as the supervisor of this folder: supervisor and keeper. */
export function supervisorsOf(dir: string): number[] {
  return pids().filter((pid) => supervises(pid, dir) && readStat(pid)?.state !== 'Z');
}

function supervises(pid: number, dir: string): boolean {
  const words = systemText(`/proc/${pid}/cmdline`).split('\0');
  return basename(words[0] ?? '') === SUPERVISOR && words.at(-2) === dir;
}

/** The keeper above this supervisor; null: gone. */
export function keeperOf(pid: number, dir: string): number | null {
  const above = readStat(pid)?.parent ?? 0;
  return supervises(above, dir) ? above : null;
}

/** Whether it was stopped (SIGSTOP), perhaps by the job. */
export function isStopped(pid: number): boolean {
  const state = readStat(pid)?.state;
  return state === 'T' || state === 't';
}

/** The supervisor, else the keeper; null: neither lives. */
export function supervisorOf(dir: string): number | null {
  const found = supervisorsOf(dir);
  return found.find((pid) => found.includes(readStat(pid)?.parent ?? 0)) ?? found[0] ?? null;
}

/** The pid here of a supervisor in a container, which has another pid there; null: none. */
export function supervisorInside(dir: string, pid: number, startTime: number): number | null {
  const hasPid = (found: number) =>
    readStat(found)?.startTime === startTime &&
    Number(/^NSpid:.*?(\d+)$/m.exec(systemText(`/proc/${found}/status`))?.[1]) === pid;
  return supervisorsOf(dir).find(hasPid) ?? null;
}

export function groupsOf(dir: string): string[] {
  const own = /^0::(\/.*)$/m.exec(systemText('/proc/self/cgroup'))?.[1];
  if (own === undefined) return [];
  const root = existsSync('/sys/fs/cgroup/cgroup.controllers') ? '/sys/fs/cgroup' : '/sys/fs/cgroup/unified';
  const name = `oomtune-${basename(dirname(dir))}-${basename(dir)}-`;
  return namesIn(join(root, own))
    .filter((entry) => entry.startsWith(name))
    .map((entry) => join(root, own, entry));
}

/** Whether anything of the launch still works. */
export function leavesTraces(dir: string): boolean {
  return supervisorsOf(dir).length > 0 || processesOf(dir).length > 0 || groupsOf(dir).some(isPopulated);
}

/** Counts groups that the job made below it, but no zombies. */
export const isPopulated = (group: string): boolean => /^populated 1$/m.test(systemText(join(group, 'cgroup.events')));
