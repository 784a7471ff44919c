import { createConnection } from 'node:net';

/**
 * Asks a Redis on a unix socket one command, without loading a client. Returns the reply's text, or null when nobody
 * answers within two seconds, or not yet (it loads its data).
 */
export function ask(socket: string, command: 'PING' | 'INFO' | 'SHUTDOWN'): Promise<string | null> {
  return new Promise((resolve) => {
    const connection = createConnection(socket);
    let text = '';
    const done = (answer: string | null): void => {
      connection.destroy();
      resolve(answer);
    };
    connection.setTimeout(2000, () => done(null));
    connection.on('error', () => done(null));
    connection.on('close', () => done(null));
    connection.on('connect', () => connection.write(`${command}\r\n`));
    connection.on('data', (data) => {
      text += data.toString('latin1');
      if (text.startsWith('-')) return done(null);
      const size = /^\$(\d+)\r\n/.exec(text);
      if (size !== null && text.length < size[0].length + Number(size[1])) return;
      if (text.includes('\r\n')) done(size === null ? text.trim() : text.slice(size[0].length));
    });
  });
}
