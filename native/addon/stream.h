// What waits in a pipe or a socket.
#pragma once

#include <napi.h>

namespace oomtune {

/**
 * (fd) → {bytes: Buffer, ended: boolean}: what can be read now of a pipe or a stream socket, left where it is, and
 * whether nobody writes any more. Of a socket's it sees 4 MiB at most, and then never says that it has ended. Throws
 * its errno.
 */
Napi::Value peekStream(const Napi::CallbackInfo& info);

}  // namespace oomtune
