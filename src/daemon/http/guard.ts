import { isIP } from 'node:net';
import { hostname } from 'node:os';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Authenticator } from './token.js';

/** A refused request: status, reason and remedy. */
export interface Refusal {
  status: 401 | 403 | 404 | 503;
  why: string;
  remedy: string;
}

const HEADERS: Record<string, string> = {
  'content-security-policy': [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; '),
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': 'camera=(), geolocation=(), microphone=()',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
};

export const setSafetyHeaders = (reply: FastifyReply): void => {
  reply.headers(HEADERS);
};

/** Answers only addresses and this machine's own names: with DNS rebinding, another site could otherwise reach us as itself. */
export function checkHost(header: string | undefined, own = hostname()): Refusal | null {
  const name = /^(\[[0-9a-f:.]+\]|[\w.-]+)(:\d{1,5})?$/i.exec(header ?? '')?.[1]?.toLowerCase();
  if (name !== undefined) {
    const bare = name.replace(/^\[|\]$/g, '');
    if (isIP(bare) !== 0 || bare === 'localhost' || bare === own.toLowerCase()) return null;
  }
  return {
    status: 403,
    why: 'This name is not one that the dashboard is known by.',
    remedy: 'Call it by its address, as `oomtune dashboard` prints it.',
  };
}

/** Refuses requests that other sites make browsers send; other programs send none of these headers. */
export function checkOrigin(request: Pick<FastifyRequest, 'method' | 'headers'>): Refusal | null {
  const { origin, host, 'sec-fetch-site': site } = request.headers;
  const refusal: Refusal = {
    status: 403,
    why: 'Requests from other sites are refused.',
    remedy: 'Ask from a page of the dashboard, or from a program with a Bearer token.',
  };
  if (origin !== undefined && origin !== `http://${host}` && origin !== `https://${host}`) return refusal;
  if (site !== undefined && site !== 'same-origin' && site !== 'none') return refusal;
  return null;
}

/** Accepts a Bearer token or a session cookie; changes by cookie must come from our page, as browsers send cookies for others. */
export function checkWho(request: FastifyRequest, authenticator: Authenticator, cookie: string): Refusal | null {
  const bearer = /^Bearer ([\w-]{1,200})$/.exec(request.headers.authorization ?? '')?.[1];
  if (request.headers.authorization !== undefined)
    return bearer !== undefined && authenticator.acceptsToken(bearer) ? null : wrongToken('The token is wrong.');
  const session = cookieOf(request.headers.cookie, cookie);
  if (session === null || !authenticator.acceptsSession(session)) return wrongToken('A token is needed.');
  if (request.method === 'GET' || request.method === 'HEAD') return null;
  const { origin, 'sec-fetch-site': site } = request.headers;
  if (origin === undefined && site !== 'same-origin') {
    return {
      status: 403,
      why: 'A request that changes something must say where it comes from.',
      remedy: 'Send an Origin header, or a Bearer token in place of the cookie.',
    };
  }
  return null;
}

export const wrongToken = (why: string): Refusal => ({
  status: 401,
  why,
  remedy: '`oomtune dashboard` prints the address with the token in it.',
});

function cookieOf(header: string | undefined, name: string): string | null {
  for (const part of (header ?? '').split(';')) {
    const [key, value] = part.trim().split('=');
    if (key === name && value !== undefined) return value;
  }
  return null;
}
