// Who measured: the machine, and how this program was compiled.
#pragma once

#include <string>

#include "base/machine.h"
#include "bench/record.h"

namespace kazeia::bench {

// `architecture`: the kernel's name for the machine, "x86_64". The id is the same after a reboot and after a kernel of
// another version, and another one on a machine with another processor, number of cores or size of memory.
MachineIdentity machine_identity(const MachineFacts& facts, const std::string& architecture);
// Of this machine.
MachineIdentity machine_identity();

const char* compiler();        // "GNU 12.2.0"
const char* compiler_flags();  // "-O3 -DNDEBUG"

}  // namespace kazeia::bench
