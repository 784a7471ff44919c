// The addon as it is, with a pretended NVML beside it loaded before: the variables and library paths of who starts a
// process do not reach the agents of a machine's daemon, so that it cannot be found in the usual ways.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void* (*Register)(void*, void*);

static void* beside(const char* name) {
  Dl_info here;
  char path[PATH_MAX];
  dladdr((void*)beside, &here);
  const char* end = strrchr(here.dli_fname, '/');
  snprintf(path, sizeof path, "%.*s/%s", (int)(end - here.dli_fname), here.dli_fname, name);
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) fprintf(stderr, "%s\n", dlerror());
  return library;
}

__attribute__((visibility("default"))) void* napi_register_module_v1(void* env, void* exports) {
  setenv("FAKE_GPUS", "eight", 1);
  beside("libnvidia-ml.so.1");
  return ((Register)dlsym(beside("real.node"), "napi_register_module_v1"))(env, exports);
}
