#pragma once

namespace genesis {

// gRPC passes its calls between threads by its own atomics. All of its critical sections are
// treated as ordered: a race between two handlers of the daemon is detected if no section of gRPC
// lies between, and nothing that gRPC orders is reported.

// Returns true if this address is code of gRPC.
bool IsGrpc(const void* address);
// Enter and leave a critical section of gRPC.
void EnterGrpc();
void LeaveGrpc();

}  // namespace genesis
