// Binds the calls that moved into libc with glibc 2.34 to their old versions, so that a library built on a new system
// still loads into a container with an old one. Included by every file that uses them.
#pragma once

#if defined(__GLIBC__) || defined(__linux__)
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#if defined(__x86_64__)
#define OOMTUNE_OLD(name) __asm__(".symver " #name "," #name "@GLIBC_2.2.5")
#elif defined(__aarch64__)
#define OOMTUNE_OLD(name) __asm__(".symver " #name "," #name "@GLIBC_2.17")
#endif
#endif
#endif

#ifdef OOMTUNE_OLD
OOMTUNE_OLD(dlopen);
OOMTUNE_OLD(dlsym);
OOMTUNE_OLD(dlclose);
OOMTUNE_OLD(dlerror);
OOMTUNE_OLD(dladdr);
#endif
