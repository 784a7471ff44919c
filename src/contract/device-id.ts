/** Devices by name: `cpu`, `cuda`, `cuda:3`. src/devices holds what differs between the kinds. */
export const KIND_NAMES = ['cpu', 'cuda'] as const;
export type KindName = (typeof KIND_NAMES)[number];

/** The host's memory: any machine has it, once. Devices of all other kinds are numbered. */
export const HOST = 'cpu' satisfies KindName;
/** The kind that stands for "a GPU" where a job names none. */
export const DEFAULT_ACCELERATOR = 'cuda' satisfies KindName;

const CHOICES = KIND_NAMES.flatMap((name) => (name === HOST ? [name] : [name, `${name}:N`]));
/** What `--device` takes, for people: `cpu, cuda or cuda:N`. */
export const DEVICE_CHOICES = `${CHOICES.slice(0, -1).join(', ')} or ${CHOICES.at(-1)}`;
export const DEVICE_CHOICE = new RegExp(`^(${CHOICES.join('|').replaceAll('N', '\\d{1,3}')})$`);

const NUMBERED = /^([a-z]+):(\d+)$/;

/** The kind of a device by its id, or of `--device`: `cpu`, `cuda`, `cuda:3`. Undefined: there is no such kind. */
export function kindNameOf(id: string): KindName | undefined {
  const name = NUMBERED.exec(id)?.[1] ?? id;
  return KIND_NAMES.find((kind) => kind === name);
}

export const idOf = (kind: KindName, ordinal: number): string => `${kind}:${ordinal}`;

/** 3 for `cuda:3`. */
export const ordinalOf = (id: string): number => Number(NUMBERED.exec(id)?.[2] ?? 0);

export const isHost = (id: string | null | undefined): boolean => id === HOST;

const isAccelerator = (kind: KindName | undefined): boolean => kind !== undefined && kind !== HOST;

/** `cuda:3`: one device of a kind that has several. */
export const isNumbered = (id: string): boolean => NUMBERED.test(id) && isAccelerator(kindNameOf(id));

/** An id that a machine may have: `cpu`, `cuda:0`. */
export const isDeviceId = (id: string): boolean => isHost(id) || isNumbered(id);
