// Who is at the other end of a local socket, and what the system knows of that account.
#pragma once

#include <napi.h>

namespace oomtune {

/** (fd) → {pid, uid, gid} of the process that connected the unix socket, as the kernel noted them then. Throws its
 * errno. */
Napi::Value peerCredentials(const Napi::CallbackInfo& info);

/** (uid) → {name, gid, home, shell, groups: [gid]}; null: there is no such account. */
Napi::Value accountOf(const Napi::CallbackInfo& info);

/** (name) → gid; null: there is no such group. */
Napi::Value groupNamed(const Napi::CallbackInfo& info);

}  // namespace oomtune
