/** A daemon's dashboard and metrics over HTTP: on loopback, behind a token, closed to other sites. */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { isIP, type Socket } from 'node:net';
import { type FastifyError, type FastifyInstance, fastify } from 'fastify';
import { OomtuneError } from '../../common/errors.js';
import type { Log } from '../../common/log.js';
import { TimeUp } from '../../common/within.js';
import type { Runtime } from '../../runtime/types.js';
import { hostName, type Store } from '../../store/index.js';
import { Observer } from '../observe/sampler.js';
import type { JobSteps } from '../sharing/pace.js';
import { EventMetrics } from './event-metrics.js';
import { checkHost, checkOrigin, setSafetyHeaders } from './guard.js';
import { JobFigures } from './job-figures.js';
import { JobRows } from './job-rows.js';
import { Machine } from './machine.js';
import { createMetrics } from './metrics.js';
import { Reasons } from './reasons.js';
import { addRoutes, refuse } from './routes.js';
import { Scrape } from './scrape.js';
import { Streams } from './streams.js';
import { Authenticator, dashboardToken } from './token.js';

export interface HttpParts {
  store: Store;
  runtime: Runtime;
  log: Log;
  version: string;
  host?: string;
  /** Null: the first free one of ten from 8421 on. 0: any. */
  port?: number | null;
  metricsOpen?: boolean;
  tokenFile?: string;
  /** How far a job has come that this daemon runs; absent: nobody here can tell. */
  steps?: (job: string) => JobSteps | null;
}

export interface HttpServer {
  /** `http://127.0.0.1:8421/` */
  url: string;
  close(): Promise<void>;
}

const FIRST_PORT = 8421;
const PORTS_TRIED = 10;
/** Streams included. */
const MOST_CONNECTIONS = 256;
/** Events to read for the reasons of recent probes. */
const PAST_EVENTS = 2000;

/** Rejects if it cannot listen on the port. */
export async function startHttp(parts: HttpParts): Promise<HttpServer> {
  const { store, runtime, log, version, host = '127.0.0.1' } = parts;
  const authenticator = new Authenticator(dashboardToken(parts.tokenFile));
  const observer = new Observer(store, runtime, log);
  const { follower, sampler } = observer;
  const figures = new JobFigures({ store, sampler, steps: parts.steps ?? (() => null) });
  const rows = new JobRows(store, log, figures);
  const machine = new Machine(store, runtime);
  const reasons = new Reasons();
  const metrics = createMetrics();
  const shared = { store, rows, figures, machine, sampler, follower, reasons, host: hostName(), version };
  const streams = new Streams(shared);
  const scrape = new Scrape({ store, runtime, machine, sampler, metrics }, version);
  const eventMetrics = new EventMetrics(store, metrics);
  const app = createApp(log);
  let port = 0;
  const cookie = (): string => `oomtune_${port}`;
  addRoutes(app, { ...shared, authenticator, cookie, streams, scrape, metricsOpen: parts.metricsOpen ?? false });

  follower.onEvent((event) => reasons.hear(event));
  await observer.start(PAST_EVENTS);
  follower.onEvent((event) => eventMetrics.hear(event)); // what was before is not counted again
  follower.onEvent(({ fields }) => fields.job && rows.changed(fields.job));
  const close = async (): Promise<void> => {
    streams.close();
    await observer.close();
    metrics.registry.clear();
    await app.close();
  };
  try {
    port = await listen(app, host, parts.port ?? null);
  } catch (error) {
    await close();
    throw error;
  }
  if (!isLoopback(host)) log.warn({ host }, 'the dashboard is served beyond this machine, without encryption');
  return { url: `http://${isIP(host) === 6 ? `[${host}]` : host}:${port}/`, close };
}

function createApp(log: Log): FastifyInstance {
  const app = fastify({
    logger: false,
    bodyLimit: 4096,
    requestTimeout: 30_000,
    keepAliveTimeout: 10_000,
    http: { headersTimeout: 10_000 },
    forceCloseConnections: true,
    routerOptions: { maxParamLength: 100 },
  });
  app.removeContentTypeParser('text/plain'); // what a form of another site could send
  boundConnections(app.server as Server, MOST_CONNECTIONS);
  app.addHook('onRequest', async (request, reply) => {
    setSafetyHeaders(reply);
    const refusal = checkHost(request.headers.host);
    if (refusal !== null) return refuse(reply, refusal);
    if (request.method === 'GET' || request.method === 'HEAD') return;
    const foreign = checkOrigin(request);
    if (foreign !== null) return refuse(reply, foreign);
  });
  app.addHook('onSend', async (_request, reply) => {
    if (!reply.hasHeader('cache-control')) reply.header('cache-control', 'no-store');
  });
  app.setNotFoundHandler((_request, reply) =>
    refuse(reply, {
      status: 404,
      why: 'There is nothing here.',
      remedy: 'The dashboard is at the address without a path.',
    }),
  );
  app.setErrorHandler((error: FastifyError | Error, _request, reply) => {
    if (error instanceof OomtuneError)
      return reply.code(error.code === 'OOMTUNE_NO_SUCH_JOB' ? 404 : 409).send(error.toJSON());
    const failure = errorOf(error);
    if (failure.code === 'OOMTUNE_INTERNAL') log.warn({ err: error }, 'a request met a fault of ours');
    const status = error instanceof TimeUp ? 503 : ((error as FastifyError).statusCode ?? 500);
    return reply.code(status).send(failure.toJSON());
  });
  return app;
}

/** Any error of a request as an OomtuneError. */
function errorOf(error: FastifyError | Error): OomtuneError {
  if (error instanceof TimeUp)
    return new OomtuneError('OOMTUNE_REDIS_UNREACHABLE', 'Redis does not answer.', '`oomtune doctor` looks at it.');
  if (((error as FastifyError).statusCode ?? 500) < 500)
    return new OomtuneError('OOMTUNE_HTTP_REFUSED', error.message, 'See docs/guides/dashboard.md.');
  return new OomtuneError('OOMTUNE_INTERNAL', 'A fault of ours.', 'The log of the daemon tells more; report it.');
}

async function listen(app: FastifyInstance, host: string, port: number | null): Promise<number> {
  const ports = port === null ? Array.from({ length: PORTS_TRIED }, (_, at) => FIRST_PORT + at) : [port];
  await app.ready();
  for (const [at, one] of ports.entries()) {
    try {
      await listenAt(app.server, host, one);
      return (app.server.address() as { port: number }).port;
    } catch (error) {
      const taken = (error as NodeJS.ErrnoException).code === 'EADDRINUSE';
      if (!taken || at === ports.length - 1) throw error;
    }
  }
  throw new Error('no port');
}

/** fastify's own listen can be called only once. */
function listenAt(server: Server, host: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen({ host, port, exclusive: true }, () => {
      server.off('error', reject);
      resolve();
    });
  });
}

const isLoopback = (host: string): boolean => host === 'localhost' || host === '::1' || /^127\./.test(host);

/** Keeps at most `most` connections: a new one replaces the one idle longest, or is refused where none is idle. */
function boundConnections(server: Server, most: number): void {
  const requests = new Map<Socket, number>();
  /** In the order in which they became idle. */
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
    // A request whose body is still to come says nothing yet
    if (headers['content-length'] !== undefined || headers['transfer-encoding'] !== undefined) return;
    count(socket, 1);
    response.once('close', () => count(socket, -1));
  });
}
