#pragma once

namespace genesis {

// gRPC hands its calls from thread to thread by atomics of its own. All of its critical sections
// count as one after the other: a race between two of our handlers is seen where no section of
// gRPC lies between, and nothing that gRPC orders is reported.

// Whether this address is code of gRPC.
bool IsGrpc(const void* address);
// Within a critical section of gRPC.
void EnterGrpc();
void LeaveGrpc();

}  // namespace genesis
