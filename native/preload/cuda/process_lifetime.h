// The start of counting in a process, the last measurement at its exit, and its forked children.
#pragma once

namespace oomtune::cuda::account {

/** At cuInit: maps the ledger and learns which devices the process sees. Without a ledger nothing is counted. */
void begin();

}  // namespace oomtune::cuda::account
