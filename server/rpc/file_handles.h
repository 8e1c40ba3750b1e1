#pragma once

namespace genesis {

// Raises the soft limit of open files to the hard one, and returns the new limit.
int RaiseFileHandleLimit();

// Decides whether another connection may be accepted. Without a free handle, the store, the log and
// the start of a worker fail, so listeners leave a quarter of them free. Counting all handles for
// each connection would be slow, so a count is reused until a part of the room that it found is
// used up.
//
// Owner: one listener. Threads: its own.
class HandleRoom {
 public:
  bool HasRoom();

 private:
  int unchecked_ = 0;  // Connections that may be accepted before the next count.
};

}  // namespace genesis
