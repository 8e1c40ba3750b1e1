#pragma once

namespace genesis {

// gRPC passes its calls between threads with its own atomics. All of its critical sections are
// therefore treated as ordered. Nothing that gRPC orders is reported; a race between two handlers
// of the daemon is detected unless a gRPC section lies between them.

// Returns true if the address is in gRPC's code.
bool IsGrpc(const void* address);
// Enter and leave a critical section of gRPC.
void EnterGrpc();
void LeaveGrpc();

}  // namespace genesis
