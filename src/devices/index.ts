import { CPU } from './cpu/index.js';
import { CUDA } from './cuda/index.js';
import type { DeviceKind } from './kind.js';

/** Every kind that there is: a new one is a folder here, and a line. In this order their libraries are loaded into a job. */
const KINDS = [CPU, CUDA] as const;
export type KindName = (typeof KINDS)[number]['name'];
export const KIND_NAMES = KINDS.map((kind) => kind.name) as [KindName, ...KindName[]];

/** The kind that stands for "a GPU" where a job names none. */
export const DEFAULT_ACCELERATOR = CUDA;
export const HOST = CPU;

const CHOICES = KINDS.flatMap((kind) => (kind.host ? [kind.name] : [kind.name, `${kind.name}:N`]));
/** What `--device` takes, for people: `cpu, cuda or cuda:N`. */
export const DEVICE_CHOICES = `${CHOICES.slice(0, -1).join(', ')} or ${CHOICES.at(-1)}`;
/** The same, to check a value with. */
export const DEVICE_CHOICE = new RegExp(`^(${CHOICES.join('|').replaceAll('N', '\\d{1,3}')})$`);

const ORDINAL = /^([a-z]+):(\d+)$/;

/** The kind of a device by its id, or of `--device`: `cpu`, `cuda`, `cuda:3`. Undefined: there is no such kind. */
export function kindOf(id: string): (DeviceKind & { name: KindName }) | undefined {
  const name = ORDINAL.exec(id)?.[1] ?? id;
  return KINDS.find((kind) => kind.name === name);
}

/** `cuda:3`: one device of a kind that has several. */
export function isNumbered(id: string): boolean {
  return kindOf(id)?.host === false && ORDINAL.test(id);
}

/** 3 for `cuda:3`. */
export const ordinalOf = (id: string): number => Number(ORDINAL.exec(id)?.[2] ?? 0);

export const idOf = (kind: DeviceKind, ordinal: number): string => `${kind.name}:${ordinal}`;

/** The host's memory, which any machine has. */
export const isHost = (id: string | null | undefined): boolean => id === HOST.name;

/** An id that a machine may have: `cpu`, `cuda:0`. */
export const isDeviceId = (id: string): boolean => isHost(id) || isNumbered(id);

export const kindsOf = (ids: readonly string[]): DeviceKind[] =>
  KINDS.filter((kind) => ids.some((id) => kindOf(id)?.name === kind.name));
