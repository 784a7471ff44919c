import { createConnection } from 'node:net';

/** `error`: a server is there, and would not (it is busy, loads its data, asks for a password). `nobody`: none answers within two seconds. */
export type Answer = { is: 'text'; text: string } | { is: 'error'; message: string } | { is: 'nobody' };

/** Asks a Redis on a unix socket one command, without loading a client. */
export function ask(socket: string, command: 'PING' | 'INFO' | 'SHUTDOWN'): Promise<Answer> {
  return new Promise((resolve) => {
    const connection = createConnection(socket);
    let text = '';
    const done = (answer: Answer): void => {
      connection.destroy();
      resolve(answer);
    };
    connection.setTimeout(2000, () => done({ is: 'nobody' }));
    connection.on('error', () => done({ is: 'nobody' }));
    connection.on('close', () => done({ is: 'nobody' }));
    connection.on('connect', () => connection.write(`${command}\r\n`));
    connection.on('data', (data) => {
      text += data.toString('latin1');
      const size = /^\$(\d+)\r\n/.exec(text);
      if (size !== null && text.length < size[0].length + Number(size[1])) return;
      if (!text.includes('\r\n')) return;
      if (text.startsWith('-')) done({ is: 'error', message: text.slice(1).trim() });
      else done({ is: 'text', text: size === null ? text.trim() : text.slice(size[0].length) });
    });
  });
}
