// How the allocator of the process deals with memory that was given back.
#pragma once

namespace gradledger::tool {

// Large pieces come and go with every event: what goes back to the system in between has to be cleared again. To be called first.
void keep_freed_memory();

// From here on what this thread gave back goes to the system when nobody has used it for a second. For run after run, each of which cuts memory in another
// way: what all of them kept would be several times what one needs.
void give_back_idle_memory();

}  // namespace gradledger::tool
