import type { Runtime } from '../../src/runtime/types.js';
import { furnish, labRuntime } from '../fixtures/dashboard/lab.mjs';
import { Browser } from './browser.js';
import { Dashboard } from './server.js';

export interface Lab {
  dashboard: Dashboard;
  world: Awaited<ReturnType<typeof furnish>>;
  browser: Browser;
  close(): Promise<void>;
}

/** The dashboard of eight GPUs and two hundred jobs. What devices there are is made up; Redis, the server and the browser are real. */
export async function startLab(): Promise<Lab> {
  let world: Lab['world'] | null = null;
  const dashboard = await Dashboard.start({
    runtime: labRuntime() as unknown as Runtime,
    steps: (job) => world?.steps(job) ?? null,
  });
  world = await furnish(dashboard.store);
  const browser = await Browser.start();
  const close = async (): Promise<void> => {
    await browser.close();
    await world?.leave();
    await dashboard.close();
  };
  return { dashboard, world, browser, close };
}
