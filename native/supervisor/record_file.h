// How supervisor.json, main.json and exit.json are written, so that neither a crash nor a full disk spoils them.
#pragma once

#include <string>

namespace oomtune {

/**
 * Writes `name` in the folder whole or not at all, on the disk before it returns: to `name.tmp`, synchronised, then
 * renamed, so that neither a crash nor a power cut leaves a part of it, or zeros. 0 or an errno.
 */
int writeRecord(int folder, const char* name, const std::string& text);

/**
 * Reserves the space that writeRecord() will need for `name`, in case the disk fills meanwhile. 0 or an errno.
 */
int reserveRecord(int folder, const char* name);

}  // namespace oomtune
