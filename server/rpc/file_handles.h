#pragma once

namespace genesis {

// Raises the soft limit of open files to the hard one, and returns what it is then.
int RaiseFileHandleLimit();

// Whether a connection more may be taken: when the last handle is gone, the store, the log and the
// start of a worker fail, so listeners leave a quarter of them alone. Counting all handles for each
// connection would be slow when there are many; a count serves until a part of the room that it
// found is used up.
//
// Owner: one listener. Threads: its own.
class HandleRoom {
 public:
  bool HasRoom();

 private:
  int unchecked_ = 0;  // Connections that may come before the next count.
};

}  // namespace genesis
