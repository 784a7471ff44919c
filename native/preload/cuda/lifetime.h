// What happens once in the life of a process: the start of counting, the last look, and the child of a fork.
#pragma once

namespace oomtune::cuda::account {

/** At cuInit: maps the ledger and learns which devices the process sees. Without a ledger nothing is counted. */
void begin();

}  // namespace oomtune::cuda::account
