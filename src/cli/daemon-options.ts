import type { StartOptions } from '../daemon/index.js';
import { usageError } from './errors.js';

/** Options of `daemon start` and `daemon run`. */
export function daemonOptions(values: Record<string, unknown>): StartOptions {
  const options: StartOptions = { allowInsecureRedis: Boolean(values.allowInsecureRedis) };
  const { cpuLanes: lanes, httpPort: port, httpHost: host } = values;
  if (lanes !== undefined) {
    if (!/^\d{1,4}$/.test(String(lanes)) || Number(lanes) < 1) {
      throw usageError(
        `Expected --cpu-lanes to be a whole number of at least 1, got "${lanes}".`,
        'Write how many jobs may run at a time with --device cpu.',
      );
    }
    options.cpuLanes = Number(lanes);
  }
  if (port !== undefined) {
    if (!/^\d{1,5}$/.test(String(port)) || Number(port) > 65_535) {
      throw usageError(
        `Expected --http-port to be a port from 0 to 65535, got "${port}".`,
        'Write where the dashboard is to be served, or 0 for nowhere.',
      );
    }
    options.httpPort = Number(port);
  }
  if (host !== undefined) {
    if (!/^[\w.:-]{1,255}$/.test(String(host))) {
      throw usageError(
        `Expected --http-host to be an address, got "${host}".`,
        'Write one of this machine: 127.0.0.1.',
      );
    }
    options.httpHost = String(host);
  }
  if (values.metricsOpen) options.metricsOpen = true;
  return options;
}
