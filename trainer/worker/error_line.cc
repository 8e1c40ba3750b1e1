#include "trainer/worker/error_line.h"

#include <unistd.h>

#include <cerrno>

namespace genesis {

void WriteErrorLine(std::string line) {
  line.push_back('\n');
  for (size_t done = 0; done < line.size();) {
    const ssize_t count = write(STDERR_FILENO, line.data() + done, line.size() - done);
    if (count < 0 && errno != EINTR) return;
    if (count > 0) done += static_cast<size_t>(count);
  }
}

}  // namespace genesis
