#include "cli/screen.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/text.h"

namespace genesis::cli {
namespace {

// Control sequences of ECMA-48 and xterm.
constexpr char kEnter[] = "\x1b[?1049h\x1b[?25l";
constexpr char kLeave[] = "\x1b[?25h\x1b[?1049l";
constexpr char kToTop[] = "\x1b[H";
constexpr char kClearLine[] = "\x1b[K";
constexpr char kClearRest[] = "\x1b[J";

}  // namespace

TerminalSize CurrentTerminalSize() {
  TerminalSize result;
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return result;
  if (size.ws_col > 0) result.columns = size.ws_col;
  if (size.ws_row > 0) result.rows = size.ws_row;
  return result;
}

Screen::Screen(Session& session) : session_(session), interrupted_(eventfd(0, EFD_CLOEXEC)) {
  session.interrupt.Set([this] { eventfd_write(interrupted_, 1); });
  if (tcgetattr(STDIN_FILENO, &saved_) == 0) {
    termios keys = saved_;
    keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    tcsetattr(STDIN_FILENO, TCSANOW, &keys);
  }
  session.out << kEnter << std::flush;
}

Screen::~Screen() {
  session_.interrupt.Clear();
  session_.out << kLeave << std::flush;
  if (saved_.c_cflag != 0) tcsetattr(STDIN_FILENO, TCSANOW, &saved_);
  close(interrupted_);
}

void Screen::Draw(const std::string& text) {
  const TerminalSize size = CurrentTerminalSize();
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (lines.size() > static_cast<size_t>(size.rows)) lines.resize(static_cast<size_t>(size.rows));
  std::string frame = kToTop;
  for (size_t i = 0; i < lines.size(); ++i) {
    absl::StrAppend(&frame, i == 0 ? "" : "\r\n",
                    CutToWidth(lines[i], static_cast<size_t>(size.columns)), kClearLine);
  }
  session_.out << frame << kClearRest << std::flush;
}

char Screen::WaitForKey(absl::Duration timeout) {
  pollfd sources[] = {{.fd = interrupted_, .events = POLLIN, .revents = 0},
                      {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0}};
  const int ready =
      poll(sources, std::size(sources), static_cast<int>(absl::ToInt64Milliseconds(timeout)));
  if (!session_.out) return 'q';
  if (ready == 0 || (ready < 0 && errno == EINTR)) return 0;
  char key = 'q';
  if (ready < 0 || sources[0].revents != 0 || read(STDIN_FILENO, &key, 1) != 1) return 'q';
  return key;
}

}  // namespace genesis::cli
