#pragma once

namespace genesis {

// Raises the soft limit of open files to the hard limit and returns the new limit.
int RaiseFileHandleLimit();

// The room for connections. Without a free file descriptor, the store, the log and worker starts
// would fail, so listeners leave a quarter of the descriptors free. Counting all
// descriptors for each connection would be slow, so a count is reused until a part of the room that
// it found is used up.
//
// Owner: one listener. Threads: the listener's.
class HandleRoom {
 public:
  bool HasRoom();

 private:
  int unchecked_ = 0;  // Connections that may be accepted before the next count.
};

}  // namespace genesis
