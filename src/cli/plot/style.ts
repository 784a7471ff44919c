import type { Part } from '../../worker/memory/memory-report.js';

interface Palette {
  ground: string;
  ink: string;
  soft: string;
  line: string;
  budget: string;
  bad: string;
  mark: string;
  parts: Record<Part, string>;
}

export const LIGHT: Palette = {
  ground: '#ffffff',
  ink: '#16191f',
  soft: '#525b6b',
  line: '#dfe3e9',
  budget: '#8f5a00',
  bad: '#b3261e',
  mark: '#1d5bd6',
  parts: {
    parameters: '#1d5bd6',
    gradients: '#0f8a7e',
    optimizer_state: '#8a3ab9',
    activations: '#2f9e53',
    allocator_slack: '#d98a1f',
    context: '#8b95a5',
    rest: '#c3cad5',
  },
};

const DARK: Palette = {
  ground: '#0f1216',
  ink: '#e8ebf0',
  soft: '#a0aaba',
  line: '#2a313b',
  budget: '#f0bd60',
  bad: '#ff938a',
  mark: '#82b1ff',
  parts: {
    parameters: '#5c93f5',
    gradients: '#4fd0c0',
    optimizer_state: '#cf9bf2',
    activations: '#6fd394',
    allocator_slack: '#f0a05a',
    context: '#7f8a9b',
    rest: '#404a58',
  },
};

/** Colours without variables, which SVG converters do not know. Dark where the viewer asks for it. */
export const STYLE = `
text { font: 12px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
.title { font-size: 15px; font-weight: 600; } .head { font-weight: 600; }
.end { text-anchor: end; } .middle { text-anchor: middle; }
line.budget { stroke-width: 1.5; stroke-dasharray: 6 4; }
.prediction { stroke-width: 1.5; stroke-dasharray: 2 3; }
.used { stroke-width: 3; } .oom { stroke-width: 2; fill: none; } .free { fill: none; }
${rules(LIGHT)}
@media (prefers-color-scheme: dark) {
${rules(DARK)}
}
`;

function rules(palette: Palette): string {
  const { ground, ink, soft, line, budget, bad, mark, parts } = palette;
  return [
    `text { fill: ${soft}; } .title, .head { fill: ${ink}; } text.budget { fill: ${budget}; }`,
    `.ground { fill: ${ground}; } .grid, .free { stroke: ${line}; } .axis { stroke: ${soft}; }`,
    `line.budget { stroke: ${budget}; } .prediction { stroke: ${mark}; } .oom { stroke: ${bad}; }`,
    `.fit { fill: ${mark}; } .used { fill: ${ground}; stroke: ${mark}; }`,
    ...Object.entries(parts).map(([part, colour]) => `.${part} { fill: ${colour}; }`),
  ].join('\n');
}
