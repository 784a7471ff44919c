import type { FastifyInstance, FastifyReply } from 'fastify';
import { z } from 'zod';
import { OomtuneError } from '../../common/errors.js';
import type { Store } from '../../store/index.js';
import { within } from '../observe/within.js';
import { cancelJob, holdJob, releaseJob, retryJob } from '../steer.js';
import { type Asset, loadAssets } from './assets.js';
import { checkOrigin, checkWho, type Refusal, wrongToken } from './guard.js';
import { jobPage } from './job-page.js';
import type { Scrape } from './scrape.js';
import type { StreamParts, Streams } from './streams.js';
import type { Gate } from './token.js';

interface RouteParts extends StreamParts {
  gate: Gate;
  /** Name of the session's cookie: another one for each port, as browsers do not tell ports apart. */
  cookie: () => string;
  streams: Streams;
  scrape: Scrape;
  metricsOpen: boolean;
}

const REDIS_MS = 5000;
const jobId = z.string().regex(/^j-[a-z0-9]{4,32}$/);
const login = z.object({ token: z.string().max(200) });

const ACTIONS: Record<string, (store: Store, id: string) => Promise<unknown>> = {
  cancel: cancelJob,
  hold: holdJob,
  release: releaseJob,
  retry: (store, id) => retryJob(store, id),
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
    const refusal = parts.metricsOpen ? null : checkWho(request, parts.gate, parts.cookie());
    if (refusal !== null) return refuse(reply, refusal);
    return reply.type('text/plain; version=0.0.4; charset=utf-8').send(await parts.scrape.text());
  });
}

/** The page itself holds nothing that is secret: whoever has no token sees where to put one. */
function addPage(app: FastifyInstance, assets: Map<string, Asset>): void {
  for (const [path, { type, etag, body }] of assets) {
    app.get(path, async (request, reply) => {
      reply.headers({ etag, 'cache-control': 'no-cache' });
      if (request.headers['if-none-match'] === etag) return reply.code(304).send();
      return reply.type(type).send(body);
    });
  }
}

function addLogin(app: FastifyInstance, { gate, cookie }: RouteParts): void {
  const attributes = 'Path=/; HttpOnly; SameSite=Strict';
  app.post('/api/login', async (request, reply) => {
    const given = login.safeParse(request.body);
    if (!given.success || !gate.acceptsToken(given.data.token)) {
      return refuse(reply, wrongToken('The token is wrong.'));
    }
    const { value, seconds } = gate.newSession();
    reply.header('set-cookie', `${cookie()}=${value}; Max-Age=${seconds}; ${attributes}`);
    return reply.code(204).send();
  });
  app.post('/api/logout', async (_request, reply) => {
    reply.header('set-cookie', `${cookie()}=; Max-Age=0; ${attributes}`);
    return reply.code(204).send();
  });
}

function addApi(app: FastifyInstance, parts: RouteParts): void {
  const { store, streams, gate, cookie } = parts;
  app.register(async (api) => {
    api.addHook('onRequest', async (request, reply) => {
      const refusal = checkOrigin(request) ?? checkWho(request, gate, cookie());
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
      const seen = parts.sampler.history(job) ?? (await within(store.memory.get(job), REDIS_MS));
      const page = await within(jobPage(store, job, parts.reasons, seen?.budget_bytes ?? null), REDIS_MS);
      if (page === null) throw noSuchJob(job);
      return { schema: 1, ...page };
    });

    api.get('/api/machine', async () => ({ schema: 1, ...(await within(parts.machine.view(), REDIS_MS)) }));

    api.post('/api/jobs/:job/:action', async (request) => {
      const { job, action } = request.params as { job: string; action: string };
      const act = Object.hasOwn(ACTIONS, action) ? ACTIONS[action] : undefined;
      if (act === undefined) throw new OomtuneError('OOMTUNE_USAGE', `There is no action "${action}".`, '');
      if (!jobId.safeParse(job).success) throw noSuchJob(job);
      await within(act(store, job), REDIS_MS);
      const { state = null, reason = null } = (await within(store.jobs.get(job), REDIS_MS)) ?? {};
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
