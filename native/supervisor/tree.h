// The descendants of this process. As a subreaper it adopts every orphan below it, so that a setsid or a double fork
// does not lead out of the tree.
#pragma once

#include <sys/types.h>

#include <vector>

namespace oomtune {

/** All living descendants, children of the dead included; zombies not. */
std::vector<pid_t> descendants();

/** Sends the signal, and SIGCONT after it, so that stopped processes hear it too. */
void signalTree(int signal);

/** Stops all before it kills them: a process that forks without end could outrun a mere sweep. */
void killTree();

}  // namespace oomtune
