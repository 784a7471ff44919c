/** Puts ours in front of what the user has set, and never twice. */
export function prepend(value: string | undefined, ours: string, separators = /[:;]/): string {
  const rest = (value ?? '').split(separators).filter((part) => part && part !== ours);
  return [ours, ...rest].join(':');
}

/** Puts ours behind what the user has set, and never twice. */
export function append(value: string | undefined, ours: string): string {
  const rest = (value ?? '').split(/[:\s]/).filter((part) => part && part !== ours);
  return [...rest, ours].join(':');
}
