import type { Page } from 'playwright-core';

/**
 * What is wrong with how a page is laid out, each with its text: past the viewport, cut off without a way to see the rest, on
 * top of other text, or with a word broken over two lines.
 */
export const layoutFaults = (page: Page): Promise<string[]> =>
  page.evaluate(() => {
    const faults: string[] = [];
    const dialog = document.querySelector('dialog[open]');
    const root = dialog ?? document.body;
    const clips = (element: Element): boolean => getComputedStyle(element).overflow !== 'visible';
    const hidden = (element: Element): boolean =>
      !element.checkVisibility() || element.closest('.unseen, .skip, thead, [aria-hidden="true"], .u-over') !== null;
    const texts: { node: Text; element: HTMLElement }[] = [];
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node !== null; node = walker.nextNode()) {
      const element = node.parentElement;
      if (element !== null && node.textContent?.trim() && !hidden(element)) texts.push({ node: node as Text, element });
    }
    if (document.documentElement.scrollWidth > innerWidth)
      faults.push(`the page is ${document.documentElement.scrollWidth} wide`);
    for (const element of root.querySelectorAll<HTMLElement>('*')) {
      if (hidden(element) || element instanceof HTMLCanvasElement) continue;
      const { width, height } = element.getBoundingClientRect();
      let { left, right } = element.getBoundingClientRect();
      for (let box = element.parentElement; box !== null && box !== document.body; box = box.parentElement) {
        if (!clips(box)) continue;
        left = Math.max(left, box.getBoundingClientRect().left);
        right = Math.min(right, box.getBoundingClientRect().right);
      }
      if (width > 0 && height > 0 && (right > innerWidth + 1 || left < -1))
        faults.push(
          `past the edge (${Math.round(left)} to ${Math.round(right)}): ${element.tagName}.${element.className}`,
        );
    }

    // Cut off: allowed only where a button beside it shows the rest
    for (const { element } of texts) {
      for (let box: HTMLElement | null = element; box !== null; box = box.parentElement) {
        if (!clips(box) || box.matches('.log, html, body')) continue;
        const cut = box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 2;
        const rest = box.closest('tr')?.querySelector('[aria-expanded]') ?? null;
        if (cut && rest === null) faults.push(`cut off: ${element.textContent?.slice(0, 80)}`);
      }
    }

    // What is seen of each text, less what boxes around it cut off
    interface Seen {
      text: string;
      element: HTMLElement;
      left: number;
      right: number;
      top: number;
      bottom: number;
    }
    const seen: Seen[] = [];
    for (const { node, element } of texts) {
      const range = document.createRange();
      range.selectNodeContents(node);
      for (const rect of range.getClientRects()) {
        let { left, right, top, bottom } = rect;
        for (let box: HTMLElement | null = element; box !== null; box = box.parentElement) {
          if (!clips(box)) continue;
          const edge = box.getBoundingClientRect();
          left = Math.max(left, edge.left);
          right = Math.min(right, edge.right);
          top = Math.max(top, edge.top);
          bottom = Math.min(bottom, edge.bottom);
        }
        if (right - left > 1 && bottom - top > 1)
          seen.push({ text: node.textContent?.trim() ?? '', element, left, right, top, bottom });
      }
    }
    seen.sort((a, b) => a.top - b.top);
    for (const [at, one] of seen.entries()) {
      for (let next = at + 1; next < seen.length; next += 1) {
        const other = seen[next] as Seen;
        if (other.top >= one.bottom) break;
        if (other.text === one.text && other.element === one.element) continue;
        const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
        const high = Math.min(one.bottom, other.bottom) - other.top;
        // Lines of different sizes of type touch by the room above and below their letters
        if (wide > 1.5 && high > 6)
          faults.push(`on top of each other: "${one.text.slice(0, 60)}" and "${other.text.slice(0, 60)}"`);
      }
    }

    // Broken: a piece of a word on two lines. After a hyphen or a slash a line may end; what is longer than a line has to break
    for (const { node, element } of texts) {
      const room = element.closest('td, dd, li, p, h1, h2, figcaption, pre, button, a')?.clientWidth ?? innerWidth;
      for (const { 0: word, index } of (node.textContent ?? '').matchAll(/[-/]*[^\s\-/:.,_=×]+[-/:.,_=×]*/g)) {
        const range = document.createRange();
        range.setStart(node, index);
        range.setEnd(node, index + word.length);
        const rects = [...range.getClientRects()].filter(({ width }) => width > 0.5);
        const lines = new Set(rects.map(({ top }) => Math.round(top)));
        const width = rects.reduce((sum, rect) => sum + rect.width, 0);
        if (lines.size > 1 && width < room) faults.push(`broken: ${word} in "${node.textContent?.slice(0, 60)}"`);
      }
    }
    return [...new Set(faults)];
  });
