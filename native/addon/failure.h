// Errors of the native side: a `code` that TypeScript knows, and the text of errno.
#pragma once

#include <napi.h>

#include <cstring>
#include <string>

namespace oomtune {

inline Napi::Error failure(Napi::Env env, const char* code, const std::string& message) {
  Napi::Error error = Napi::Error::New(env, message);
  error.Set("code", Napi::String::New(env, code));
  return error;
}

}  // namespace oomtune
