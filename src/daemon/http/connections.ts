import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/**
 * Keeps no more than `most` connections open: one more takes the place of the one that has been idle for longest, so that
 * those who connect and say nothing keep nobody out. Where none is idle, the new one is refused.
 */
export function boundConnections(server: Server, most: number): void {
  const requests = new Map<Socket, number>();
  /** In the order in which they fell idle. */
  const idle = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    requests.set(socket, 0);
    idle.add(socket);
    socket.once('close', () => {
      requests.delete(socket);
      idle.delete(socket);
    });
    if (requests.size <= most) return;
    const [longest] = idle;
    longest?.destroy();
    if (longest !== undefined) {
      requests.delete(longest);
      idle.delete(longest);
    }
  });
  const count = (socket: Socket, by: number): void => {
    const now = requests.get(socket);
    if (now === undefined) return;
    requests.set(socket, now + by);
    if (now + by > 0) idle.delete(socket);
    else idle.add(socket);
  };
  server.prependListener('request', ({ headers, socket }: IncomingMessage, response: ServerResponse) => {
    // One that has a body to come says nothing yet
    if (headers['content-length'] !== undefined || headers['transfer-encoding'] !== undefined) return;
    count(socket, 1);
    response.once('close', () => count(socket, -1));
  });
}
