// How the allocator of the process deals with memory that was given back.
#pragma once

namespace gradledger::tool {

// Large pieces come and go with every event: what goes back to the system in between has to be cleared again. To be called first.
void keep_freed_memory();

}  // namespace gradledger::tool
