import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, extname, join } from 'node:path';
import type { FastifyInstance, FastifyReply } from 'fastify';
import { z } from 'zod';
import { OomtuneError, usageError } from '../../common/errors.js';
import { PACKAGE_ROOT } from '../../common/home.js';
import { parseSpan } from '../../common/span.js';
import { within } from '../../common/within.js';
import { jobId } from '../../contract/fields.js';
import { jobOptions } from '../../contract/options.js';
import type { Store } from '../../store/index.js';
import { cancelJob, editJob, holdJob, releaseJob, retryJob } from '../steer.js';
import { checkOrigin, checkWho, type Refusal, wrongToken } from './guard.js';
import { jobPage } from './job-page.js';
import type { Scrape } from './scrape.js';
import type { StreamParts, Streams } from './streams.js';
import type { Authenticator } from './token.js';

interface RouteParts extends StreamParts {
  authenticator: Authenticator;
  /** The session's cookie; its name contains the port, as browsers share cookies between ports. */
  cookie: () => string;
  streams: Streams;
  scrape: Scrape;
  metricsOpen: boolean;
}

/** Bounds an answer: the client of Redis would wait through an outage. */
const inTime = <T>(answer: Promise<T>): Promise<T> => within(5000, null, () => answer);
const login = z.object({ token: z.string().max(200) });

const TIME = 'a time such as 4h, 1h30m, 2:30:00, or none';
const changes = z
  .strictObject({
    priority: jobOptions.shape.priority.optional(),
    time: z
      .string()
      .max(64)
      .refine((text) => text === 'none' || parseSpan(text) !== null, `time to be ${TIME}`)
      .optional(),
  })
  .refine(({ priority, time }) => priority !== undefined || time !== undefined, 'a priority or a time');

/** By their names in a request; what they take is checked here. */
const ACTIONS: Record<string, (store: Store, id: string, body: unknown) => Promise<unknown>> = {
  cancel: cancelJob,
  hold: holdJob,
  release: releaseJob,
  retry: (store, id) => retryJob(store, id),
  edit: (store, id, body) => {
    const given = changes.safeParse(body);
    if (!given.success) throw usageError(`Expected ${given.error.issues[0]?.message}.`, 'See `oomtune edit --help`.');
    const { priority, time } = given.data;
    return editJob(store, id, {
      ...(priority === undefined ? {} : { priority }),
      ...(time === undefined ? {} : { timeSeconds: time === 'none' ? null : parseSpan(time) }),
    });
  },
};

export const refuse = (reply: FastifyReply, { status, why, remedy }: Refusal): FastifyReply =>
  reply
    .code(status)
    .send(new OomtuneError(status === 404 ? 'OOMTUNE_HTTP_NOT_FOUND' : 'OOMTUNE_HTTP_REFUSED', why, remedy).toJSON());

export function addRoutes(app: FastifyInstance, parts: RouteParts): void {
  addPage(app, loadAssets());
  addLogin(app, parts);
  addApi(app, parts);
  app.get('/metrics', async (request, reply) => {
    const refusal = parts.metricsOpen ? null : checkWho(request, parts.authenticator, parts.cookie());
    if (refusal !== null) return refuse(reply, refusal);
    return reply.type('text/plain; version=0.0.4; charset=utf-8').send(await parts.scrape.text());
  });
}

/** The page is not secret: without a token it shows where to enter one. */
function addPage(app: FastifyInstance, assets: Map<string, Asset>): void {
  for (const [path, { type, etag, body }] of assets) {
    app.get(path, async (request, reply) => {
      reply.headers({ etag, 'cache-control': 'no-cache' });
      if (request.headers['if-none-match'] === etag) return reply.code(304).send();
      return reply.type(type).send(body);
    });
  }
}

function addLogin(app: FastifyInstance, { authenticator, cookie }: RouteParts): void {
  const attributes = 'Path=/; HttpOnly; SameSite=Strict';
  app.post('/api/login', async (request, reply) => {
    const given = login.safeParse(request.body);
    if (!given.success || !authenticator.acceptsToken(given.data.token))
      return refuse(reply, wrongToken('The token is wrong.'));
    const { value, seconds } = authenticator.newSession();
    reply.header('set-cookie', `${cookie()}=${value}; Max-Age=${seconds}; ${attributes}`);
    return reply.code(204).send();
  });
  app.post('/api/logout', async (_request, reply) => {
    reply.header('set-cookie', `${cookie()}=; Max-Age=0; ${attributes}`);
    return reply.code(204).send();
  });
}

function addApi(app: FastifyInstance, parts: RouteParts): void {
  const { store, streams, authenticator, cookie } = parts;
  app.register(async (api) => {
    api.addHook('onRequest', async (request, reply) => {
      const refusal = checkOrigin(request) ?? checkWho(request, authenticator, cookie());
      if (refusal !== null) return refuse(reply, refusal);
    });

    api.get('/api/session', async () => ({ schema: 1, host: parts.host, version: parts.version }));

    api.get('/api/stream', async (request, reply) => {
      const { job } = request.query as { job?: unknown };
      const id = job === undefined ? null : jobId.safeParse(job);
      if (id?.success === false) throw noSuchJob(job);
      if (streams.full) return refuse(reply, BUSY);
      reply.hijack();
      for (const [name, value] of Object.entries(reply.getHeaders())) {
        if (value !== undefined) reply.raw.setHeader(name, value);
      }
      if (id === null) streams.overview(reply.raw);
      else streams.job(reply.raw, id.data);
    });

    api.get('/api/jobs/:job', async (request) => {
      const { job } = request.params as { job: string };
      if (!jobId.safeParse(job).success) throw noSuchJob(job);
      const seen = parts.sampler.history(job) ?? (await inTime(store.memory.get(job)));
      const page = await inTime(jobPage(parts, job, seen?.budget_bytes ?? null));
      if (page === null) throw noSuchJob(job);
      return { schema: 1, ...page };
    });

    api.get('/api/machine', async () => ({ schema: 1, ...(await inTime(parts.machine.view())) }));

    api.post('/api/jobs/:job/:action', async (request) => {
      const { job, action } = request.params as { job: string; action: string };
      const act = Object.hasOwn(ACTIONS, action) ? ACTIONS[action] : undefined;
      if (act === undefined) throw usageError(`There is no action "${action}".`, '');
      if (!jobId.safeParse(job).success) throw noSuchJob(job);
      await inTime(act(store, job, request.body));
      const { state = null, reason = null } = (await inTime(store.jobs.get(job))) ?? {};
      return { schema: 1, job, state, reason };
    });
  });
}

const noSuchJob = (job: unknown): OomtuneError =>
  new OomtuneError(
    'OOMTUNE_NO_SUCH_JOB',
    `There is no job "${String(job).slice(0, 64)}".`,
    'It may have been forgotten.',
  );

const BUSY: Refusal = { status: 503, why: 'Too many pages are open.', remedy: 'Close some of them.' };

interface Asset {
  type: string;
  etag: string;
  body: Buffer;
}

const TYPES: Record<string, string> = {
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/** The page's files by their path in a request, read once: no request ever reaches the file system. */
function loadAssets(folder = join(PACKAGE_ROOT, 'web')): Map<string, Asset> {
  const assets = new Map<string, Asset>();
  const add = (path: string, file: string): void => {
    const type = TYPES[extname(file)];
    if (type === undefined) return;
    const body = readFileSync(file);
    assets.set(path, { type, body, etag: `"${createHash('sha256').update(body).digest('base64url').slice(0, 22)}"` });
  };
  for (const name of readdirSync(folder)) add(`/${name}`, join(folder, name));
  const uplot = dirname(createRequire(import.meta.url).resolve('uplot/package.json'));
  add('/uplot.js', join(uplot, 'dist', 'uPlot.esm.js'));
  add('/uplot.css', join(uplot, 'dist', 'uPlot.min.css'));
  const page = assets.get('/index.html');
  if (page !== undefined) assets.set('/', page);
  return assets;
}
