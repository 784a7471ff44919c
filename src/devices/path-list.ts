/** Puts `ours` before the user's, once. */
export function prepend(value: string | undefined, ours: string, separators = /[:;]/): string {
  const rest = (value ?? '').split(separators).filter((part) => part && part !== ours);
  return [ours, ...rest].join(':');
}

/** Puts `ours` behind the user's, once. */
export function append(value: string | undefined, ours: string): string {
  const rest = (value ?? '').split(/[:\s]/).filter((part) => part && part !== ours);
  return [...rest, ours].join(':');
}
