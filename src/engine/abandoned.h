// Contexts that must never be freed.
#pragma once

struct llama_context;

namespace kazeia {

// Leaves the context to itself and makes the pointer null. Its memory stays: a silent device may still write there, or
// upstream would free a buffer twice, since after an allocation that failed its CPU backend holds one that is gone.
void abandon(llama_context*& context) noexcept;

}  // namespace kazeia
