import { closeSync, constants, fstatSync, openSync } from 'node:fs';
import { isatty } from 'node:tty';
import { descriptor } from '../common/descriptor.js';

/**
 * Whether the end of the terminal is to be ignored, as `nohup` and a shell's `trap '' HUP` ask for. Node forgets at its start which signals its
 * parent had it ignore, so it is told by what nohup leaves: no stream is a terminal, and either the output goes to a file, or
 * stdin cannot be read (GNU nohup opens a terminal's place for writing alone).
 */
export function ignoresHangup(): boolean {
  if ([0, 1, 2].some((fd) => isatty(fd))) return false;
  return [1, 2].some((fd) => fstatSync(fd).isFile()) || isWriteOnly(0);
}

const isWriteOnly = (fd: number): boolean => (descriptor(fd).flags & 3) === constants.O_WRONLY;

/** At its end Node 20 sets terminals back as they were, and aborts where one of them is gone: then nothing stands in its place. */
export function letGoOfTerminals(): void {
  const terminals = [0, 1, 2].filter((fd) => isatty(fd));
  process.on('exit', () => {
    for (const fd of terminals.filter((one) => !isatty(one))) {
      closeSync(fd);
      openSync('/dev/null', 'r+'); // the lowest that is free: the same
    }
  });
}
