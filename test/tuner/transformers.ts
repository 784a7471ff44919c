import type { MemoryScript } from './memory-script.js';

/** Width of both models, the bytes of a square of it in float32, and in half precision. */
const H = 768;
const SINGLE = 4 * H * H;
const HALF = 2 * H * H;
const weightsOfLayer = [
  4 * H,
  4 * H,
  3 * SINGLE,
  12 * H,
  SINGLE,
  4 * H,
  4 * H,
  4 * H,
  4 * SINGLE,
  16 * H,
  4 * SINGLE,
  4 * H,
];

/** Backward through a matrix product whose input is `input` and whose half-precision weight copy is `copy`. */
function product(parts: number, bias: number, input: string, copy: string, gradient: string): string {
  return `half:${parts * HALF}b !${parts * SINGLE}b -half !${bias}b -${gradient} -${input} -${copy}`;
}

/** Backward through a layer norm of \`input\`, and the residual stream's gradient. */
function norm(gradient: string, input: string, statistics: string): string {
  return `wide:4u -${gradient} back:4u -wide ${statistics} !${4 * H}b !${4 * H}b -${input} sum:4u -back -$g $g<sum`;
}

/**
 * ViT-B/16 in bf16 on pictures of 224 x 224, zero_grad between forward and backward. Under 24 GiB a fresh process takes 332;
 * 333 and 334 last three steps, and not many more.
 */
export function vit(): MemoryScript {
  const tokens = 197;
  const row = `${4 * tokens}s`;
  return {
    unit: tokens * H,
    layers: 12,
    weights: [
      SINGLE,
      4 * H,
      4 * H,
      4 * tokens * H,
      ...Array(12).fill(weightsOfLayer).flat(),
      4 * H,
      4 * H,
      4000 * H,
      4000,
    ],
    begin: `$picture:602112s cast:301056s wp:${HALF}b conv:301056s ws:67108864b -ws cat:2u -conv $x:4u -cat`,
    layerForward: `x<$x ln:4u s1:${row} s2:${row} c1:2u -ln $$handle
      w1:${3 * HALF}b qkv:6u o:2u lse:${48 * tokens}s w2:${HALF}b p:2u r:4u -p
      ln:4u s3:${row} s4:${row} c2:2u -ln w3:${4 * HALF}b h:8u gelu:8u w4:${4 * HALF}b p:2u $x:4u -p`,
    loss: `ln:4u s1:${row} s2:${row} head:1536s wh:${2000 * H}b logits:2000s wide:4000s soft:4000s -logits zero
      d:4000s db:2000s -d -soft -wide dh:1536s half:${2000 * H}b !${4000 * H}b -half !4000b -db -wh -head
      back:4u -dh $g:4u -back !${4 * H}b !${4 * H}b -ln -s1 -s2 -$x`,
    layerBackward: `t:2u i:8u ${product(4, 4 * H, 'gelu', 'w4', 't')} dg:8u -i -h i:2u ${product(4, 16 * H, 'c2', 'w3', 'dg')}
      ${norm('i', 'r', '-s3 -s4')} t:2u i:2u ${product(1, 4 * H, 'o2', 'w2', 't')} dq:6u -i -qkv -o -lse
      i:2u ${product(3, 12 * H, 'c1', 'w1', 'dq')} ${norm('i', 'x', '-s1 -s2')}`,
    end: `c:2u -$g ws:67108864b half:${HALF}b -ws !${SINGLE}b -half !${4 * H}b !${4 * H}b !${4 * tokens * H}b -c -cast -wp`,
  };
}

/**
 * GPT-2 in bf16 on 512 tokens, zero_grad between forward and backward. The blocks of its loss (96 MiB a sample each) decide
 * under 24 GiB: a fresh process takes 26, and none of 27, 28 and 29, for which 3 GiB lie about in pieces; but it takes 30.
 */
export function gpt2(): MemoryScript {
  const row = `${4 * 512}s`;
  const words = 50257;
  const logits = `${4 * 512 * words}s`;
  const halves = `${2 * 512 * words}s`;
  return {
    unit: 512 * H,
    layers: 12,
    weights: [4 * words * H, 4096 * H, ...Array(12).fill(weightsOfLayer).flat(), 4 * H, 4 * H],
    begin: `$tokens:4096s a:4u b:4u $x:4u -a -b mask:1u d:4u -$x $x<d`,
    layerForward: `x<$x ln:4u s1:${row} s2:${row} c1:2u -ln $$handle
      w1:${3 * HALF}b qkv:6u q:2u k:2u v:2u -qkv o:2u lse:${48 * 512}s oc:2u w2:${HALF}b p:2u m1:1u dr:2u -p r:4u -dr
      ln:4u s3:${row} s4:${row} c2:2u -ln w3:${4 * HALF}b h:8u hx:8u a:16u b:16u -a a:16u -b b:16u -a tanh:16u -b one:16u a:16u more:10u
      c3:8u -a w4:${4 * HALF}b p:2u m2:1u dr:2u -p $x:4u -dr`,
    loss: `ln:4u s1:${row} s2:${row} head:2u -ln wh:${2 * words * H}b lg:${halves} wide:${logits} soft:${logits} -wide -lg zero
      dn:${logits} dl:${logits} -dn -soft db:${halves} -dl dh:2u half:${2 * words * H}b -db !${4 * words * H}b -half -wh
      i:4u -dh -head $g:4u -i -$x -s1 -s2 !${4 * H}b !${4 * H}b`,
    layerBackward: `t:2u -m2 i:8u ${product(4, 4 * H, 'c3', 'w4', 't')} a:16u -i b:16u c:16u -a -hx -one a:16u -c -tanh c:16u -a -more
      a:16u -c dg:8u -a -b -h i:2u ${product(4, 16 * H, 'c2', 'w3', 'dg')} ${norm('i', 'r', '-s3 -s4')}
      t:2u -m1 i:2u ${product(1, 4 * H, 'oc', 'w2', 't')} dq:2u dk:2u dv:2u -i -q -k -v -o -lse dqkv:6u -dq -dk -dv
      i:2u ${product(3, 12 * H, 'c1', 'w1', 'dqkv')} ${norm('i', 'x', '-s1 -s2')}`,
    end: `-mask e:${4 * words * H}b -e !${4096 * H}b -$g`,
  };
}
