import { userInfo } from 'node:os';

/** The name of the user who runs this process; its number where it has no name, as in a container. */
export function ownUser(): string {
  try {
    return userInfo().username;
  } catch {
    return String(process.getuid?.() ?? 'nobody');
  }
}
