import { readFileSync } from 'node:fs';

interface Descriptor {
  /** Where the next byte is read, in bytes. */
  position: number;
  /** O_* of open(2), with the access mode in the lowest two bits. */
  flags: number;
}

/** What the kernel tells of an open file descriptor of this process (proc_pid_fdinfo(5)). Throws the system's error if there is none. */
export function descriptor(fd: number): Descriptor {
  const text = readFileSync(`/proc/self/fdinfo/${fd}`, 'utf8');
  const field = (name: string): string => new RegExp(`^${name}:\\s*(\\d+)`, 'm').exec(text)?.[1] ?? '0';
  return { position: Number(field('pos')), flags: Number.parseInt(field('flags'), 8) };
}
