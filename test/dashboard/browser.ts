import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type BrowserContext, chromium, type Page } from 'playwright-core';

const PLACES = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];

/** The system's Chromium with a profile of its own, one at a time; what it says and asks for is kept. */
export class Browser {
  readonly #context: BrowserContext;
  readonly #profile: string;
  readonly requests: string[] = [];
  /** Errors of scripts, refusals by the page's policy, and what is logged as an error. */
  readonly complaints: string[] = [];

  private constructor(context: BrowserContext, profile: string) {
    this.#context = context;
    this.#profile = profile;
    context.setDefaultTimeout(30_000);
    context.on('request', (request) => this.requests.push(request.url()));
    context.on('weberror', (error) => this.complaints.push(String(error.error())));
    context.on('console', (message) => message.type() === 'error' && this.complaints.push(message.text()));
  }

  static async start(): Promise<Browser> {
    const executablePath = PLACES.find((path) => existsSync(path));
    if (executablePath === undefined) throw new Error('There is no Chromium: `npm run setup` installs it.');
    const profile = mkdtempSync(join(tmpdir(), 'oomtune-chromium-'));
    const context = await chromium.launchPersistentContext(profile, {
      executablePath,
      headless: true,
      viewport: { width: 1280, height: 900 },
      args: [
        '--headless',
        '--no-sandbox',
        '--disable-gpu',
        '--disable-quic',
        '--no-first-run',
        '--disable-background-networking',
        '--disable-component-update',
        '--disable-sync',
      ],
    });
    return new Browser(context, profile);
  }

  async page(url: string): Promise<Page> {
    const page = await this.#context.newPage();
    await page.goto(url);
    return page;
  }

  async forget(): Promise<void> {
    await this.#context.clearCookies();
  }

  async close(): Promise<void> {
    await this.#context.close();
    rmSync(this.#profile, { recursive: true, force: true });
  }
}

/** Text that is harder to read than WCAG's 4.5 to 1, each with its ratio. */
export const faintTexts = (page: Page): Promise<string[]> =>
  page.evaluate(() => {
    const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    if (canvas === null) throw new Error('no canvas');
    const rgba = (colour: string): number[] => {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
      return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const light = (colour: number[]): number => {
      const [r = 0, g = 0, b = 0] = colour.slice(0, 3).map((value) => {
        const part = value / 255;
        return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
      });
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const faint: string[] = [];
    for (const element of document.querySelectorAll<HTMLElement>('body *')) {
      const text = [...element.childNodes]
        .filter((node) => node.nodeType === 3)
        .map((node) => node.textContent?.trim());
      if (!text.some(Boolean) || !element.checkVisibility() || element.closest(':disabled, .unseen, .skip')) continue;
      let ground: Element | null = element;
      while (ground !== null && rgba(getComputedStyle(ground).backgroundColor)[3] === 0) ground = ground.parentElement;
      const behind = light(rgba(ground === null ? 'white' : getComputedStyle(ground).backgroundColor));
      const [high, low] = [light(rgba(getComputedStyle(element).color)), behind].sort((a, b) => b - a) as [
        number,
        number,
      ];
      const ratio = (high + 0.05) / (low + 0.05);
      if (ratio < 4.5) faint.push(`${text.join(' ')}: ${ratio.toFixed(2)}`);
    }
    return faint;
  });
