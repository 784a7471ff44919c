// The descendants of this process. As a subreaper it adopts every orphan below it, so that a setsid or a double fork
// does not lead out of the tree.
#pragma once

#include <sys/types.h>

#include <vector>

namespace oomtune {

/** Pids of all living descendants, those of dead children included; no zombies. */
std::vector<pid_t> descendants();

/** The spare among them, by its name: a fork that the job's hook has left waiting for a search. -1: there is none. */
pid_t spareOf(const std::vector<pid_t>& processes);

/** Sends the signal to all descendants, and SIGCONT after it, so that stopped processes receive it too. */
void signalTree(int signal);

/** Kills all descendants. Stops them first: a process that keeps forking could outrun a mere sweep of SIGKILL. */
void killTree();

}  // namespace oomtune
