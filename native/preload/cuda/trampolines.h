// Trampolines: for every SYMBOL(name) of a list an exported function of that name which jumps through a slot. The slots
// first hold a stub that saves every argument register, asks oomtune_resolve() once, and goes on to what it answers;
// resolving fills all slots, so that each later call costs one indirect jump.
//
//   asm(OOMTUNE_TRAMPOLINES_BEGIN
//   #define SYMBOL(name) OOMTUNE_TRAMPOLINE(name)
//   #include "symbols.def"
//   OOMTUNE_TRAMPOLINES_END);
#pragma once

extern "C" {
/** One for each name of the list, in its order. */
extern void* oomtune_slots[] __attribute__((visibility("hidden")));
/** Called by the stubs: answers where the call of this slot goes. */
void* oomtune_resolve(void** slot) __attribute__((visibility("hidden")));
}

// clang-format off
#if defined(__x86_64__)

#define OOMTUNE_TRAMPOLINES_BEGIN                      \
  ".section .data.oomtune_slots,\"aw\",@progbits\n"    \
  ".balign 8\n"                                        \
  ".globl oomtune_slots\n"                             \
  ".hidden oomtune_slots\n"                            \
  "oomtune_slots:\n"                                   \
  ".section .text.oomtune_trampolines,\"ax\",@progbits\n" \
  ".balign 16\n"                                       \
  ".type oomtune_enter,@function\n"                    \
  "oomtune_enter:\n"                                   \
  "  .cfi_startproc\n"                                 \
  "  pushq %rdi\n  pushq %rsi\n  pushq %rdx\n  pushq %rcx\n" \
  "  pushq %r8\n  pushq %r9\n  pushq %rax\n  pushq %r10\n"   \
  "  subq $136, %rsp\n"                                \
  "  .cfi_adjust_cfa_offset 200\n"                     \
  "  movups %xmm0, 0(%rsp)\n  movups %xmm1, 16(%rsp)\n"   \
  "  movups %xmm2, 32(%rsp)\n  movups %xmm3, 48(%rsp)\n"  \
  "  movups %xmm4, 64(%rsp)\n  movups %xmm5, 80(%rsp)\n"  \
  "  movups %xmm6, 96(%rsp)\n  movups %xmm7, 112(%rsp)\n" \
  "  movq %r11, %rdi\n"                                \
  "  call oomtune_resolve\n"                           \
  "  movq %rax, %r11\n"                                \
  "  movups 0(%rsp), %xmm0\n  movups 16(%rsp), %xmm1\n"   \
  "  movups 32(%rsp), %xmm2\n  movups 48(%rsp), %xmm3\n"  \
  "  movups 64(%rsp), %xmm4\n  movups 80(%rsp), %xmm5\n"  \
  "  movups 96(%rsp), %xmm6\n  movups 112(%rsp), %xmm7\n" \
  "  addq $136, %rsp\n"                                \
  "  popq %r10\n  popq %rax\n  popq %r9\n  popq %r8\n" \
  "  popq %rcx\n  popq %rdx\n  popq %rsi\n  popq %rdi\n" \
  "  .cfi_adjust_cfa_offset -200\n"                    \
  "  jmp *%r11\n"                                      \
  "  .cfi_endproc\n"                                   \
  ".size oomtune_enter,.-oomtune_enter\n"

#define OOMTUNE_TRAMPOLINE(name)                       \
  ".section .text.oomtune_trampolines,\"ax\",@progbits\n" \
  ".balign 16\n"                                       \
  ".globl " #name "\n"                                 \
  ".type " #name ",@function\n" #name ":\n"            \
  "  endbr64\n"                                        \
  "  jmp *.Lslot_" #name "(%rip)\n"                    \
  ".size " #name ",.-" #name "\n"                      \
  ".Lfirst_" #name ":\n"                               \
  "  leaq .Lslot_" #name "(%rip), %r11\n"              \
  "  jmp oomtune_enter\n"                              \
  ".section .data.oomtune_slots\n"                     \
  ".Lslot_" #name ": .quad .Lfirst_" #name "\n"

#elif defined(__aarch64__)

// ldar, not ldr: whoever sees a filled slot must also see what its hook reads.
#define OOMTUNE_TRAMPOLINES_BEGIN                      \
  ".section .data.oomtune_slots,\"aw\",@progbits\n"    \
  ".balign 8\n"                                        \
  ".globl oomtune_slots\n"                             \
  ".hidden oomtune_slots\n"                            \
  "oomtune_slots:\n"                                   \
  ".section .text.oomtune_trampolines,\"ax\",@progbits\n" \
  ".balign 16\n"                                       \
  ".type oomtune_enter,%function\n"                    \
  "oomtune_enter:\n"                                   \
  "  .cfi_startproc\n"                                 \
  "  stp x29, x30, [sp, #-224]!\n"                     \
  "  .cfi_def_cfa_offset 224\n  .cfi_offset x29, -224\n  .cfi_offset x30, -216\n" \
  "  stp x0, x1, [sp, #16]\n  stp x2, x3, [sp, #32]\n" \
  "  stp x4, x5, [sp, #48]\n  stp x6, x7, [sp, #64]\n" \
  "  str x8, [sp, #80]\n"                              \
  "  stp q0, q1, [sp, #96]\n  stp q2, q3, [sp, #128]\n"   \
  "  stp q4, q5, [sp, #160]\n  stp q6, q7, [sp, #192]\n"  \
  "  mov x0, x17\n"                                    \
  "  bl oomtune_resolve\n"                             \
  "  mov x16, x0\n"                                    \
  "  ldp q0, q1, [sp, #96]\n  ldp q2, q3, [sp, #128]\n"   \
  "  ldp q4, q5, [sp, #160]\n  ldp q6, q7, [sp, #192]\n"  \
  "  ldr x8, [sp, #80]\n"                              \
  "  ldp x0, x1, [sp, #16]\n  ldp x2, x3, [sp, #32]\n" \
  "  ldp x4, x5, [sp, #48]\n  ldp x6, x7, [sp, #64]\n" \
  "  ldp x29, x30, [sp], #224\n"                       \
  "  br x16\n"                                         \
  "  .cfi_endproc\n"                                   \
  ".size oomtune_enter,.-oomtune_enter\n"

#define OOMTUNE_TRAMPOLINE(name)                       \
  ".section .text.oomtune_trampolines,\"ax\",@progbits\n" \
  ".balign 16\n"                                       \
  ".globl " #name "\n"                                 \
  ".type " #name ",%function\n" #name ":\n"            \
  "  hint #34\n"                                       \
  "  adrp x17, .Lslot_" #name "\n"                     \
  "  add x17, x17, :lo12:.Lslot_" #name "\n"           \
  "  ldar x16, [x17]\n"                                \
  "  br x16\n"                                         \
  ".size " #name ",.-" #name "\n"                      \
  ".section .data.oomtune_slots\n"                     \
  ".Lslot_" #name ": .quad oomtune_enter\n"

#else
#error "The stand-ins know x86-64 and aarch64."
#endif

#define OOMTUNE_TRAMPOLINES_END ".text\n"
// clang-format on
