import { z } from 'zod';
import { errorDocument } from './failure.js';
import { hookMessage, hookOrder } from './hook.js';
import { httpDocuments, streamEvents } from './http.js';
import { jobRecord, oomtuneEvent } from './job.js';
import { exitRecord } from './launch.js';
import { notification } from './notification.js';
import { recommendation } from './recommendation.js';
import { runReport } from './reports.js';
import { verbDocuments } from './verbs.js';

/** The documents with a JSON Schema in docs/reference/schemas, by file name. */
export const documents: Record<string, z.ZodType> = {
  ...verbDocuments,
  ...httpDocuments,
  ...Object.fromEntries(Object.entries(streamEvents).map(([name, event]) => [`stream-${name}`, event])),
  error: errorDocument,
  notification,
  'run-report': runReport,
  'exit-record': exitRecord,
  'hook-message': hookMessage,
  'hook-order': hookOrder,
  'redis-config': recommendation,
  'redis-job': jobRecord,
  'redis-event': oomtuneEvent,
};

/** As JSON Schema (2020-12). Later versions may add fields, so validators have to accept unknown ones. */
export function jsonSchema(name: string): object {
  return z.toJSONSchema(documents[name] as z.ZodType, {
    io: name.startsWith('hook-') ? 'input' : 'output',
    override: ({ jsonSchema: made }) => {
      if (made.additionalProperties === false) delete made.additionalProperties;
    },
  });
}
