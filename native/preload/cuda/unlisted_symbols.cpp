// Prints the driver's public functions that this build does not list: a program that links to one of them by name
// cannot start under the stand-in. Only with OOMTUNE_DEBUG.
#include "unlisted_symbols.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "real_library.h"

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
__asm__(".symver dlinfo,dlinfo@GLIBC_2.3.3");
#elif defined(__aarch64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
__asm__(".symver dlinfo,dlinfo@GLIBC_2.17");
#endif

namespace oomtune::cuda {

namespace {

/** The number of dynamic symbols; only the hash table tells. */
uint32_t countSymbols(const uint32_t* hash) {
  const uint32_t buckets = hash[0];
  const uint32_t offset = hash[1];
  const uint32_t bloom = hash[2];
  const uint32_t* bucket = hash + 4 + size_t{2} * bloom;  // a bloom word is 64 bits
  const uint32_t* chain = bucket + buckets;
  uint32_t last = 0;
  for (uint32_t i = 0; i < buckets; ++i) {
    if (bucket[i] > last) last = bucket[i];
  }
  if (last < offset) return offset;
  while ((chain[last - offset] & 1) == 0) ++last;
  return last + 1;
}

}  // namespace

void warnOfUnlisted(void* handle, bool (*listed)(const char*), const char* prefix) {
  const char* wanted = getenv("OOMTUNE_DEBUG");
  link_map* map = nullptr;
  if (wanted == nullptr || wanted[0] == '\0' || dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0 ||
      map == nullptr)
    return;
  const ElfW(Sym)* symbols = nullptr;
  const char* strings = nullptr;
  const uint32_t* hash = nullptr;
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(entry->d_un.d_ptr);
    if (entry->d_tag == DT_STRTAB) strings = reinterpret_cast<const char*>(entry->d_un.d_ptr);
    if (entry->d_tag == DT_GNU_HASH) hash = reinterpret_cast<const uint32_t*>(entry->d_un.d_ptr);
  }
  if (symbols == nullptr || strings == nullptr || hash == nullptr) return;
  const uint32_t count = countSymbols(hash);
  const size_t length = strlen(prefix);
  for (uint32_t i = 0; i < count; ++i) {
    const ElfW(Sym) & symbol = symbols[i];
    const char* name = strings + symbol.st_name;
    bool function = ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_shndx != SHN_UNDEF;
    bool ours = strncmp(name, prefix, length) == 0 && name[length] >= 'A' && name[length] <= 'Z';
    if (function && ours && !listed(name)) debugLine("the driver exports %s, which this build does not list", name);
  }
}

}  // namespace oomtune::cuda
