#pragma once

#include <termios.h>

#include <string>

#include "absl/time/time.h"
#include "cli/session.h"

namespace genesis::cli {

// Columns and rows of a terminal.
struct TerminalSize {
  int columns = 80;
  int rows = 24;
};

// Returns the size of the terminal on standard output; 80 by 24 if there is none.
TerminalSize CurrentTerminalSize();

// A terminal whose whole screen is redrawn: the alternate screen, without a cursor, with keys that
// need no Enter. The destructor restores the terminal. For one thread; one object at a time.
class Screen {
 public:
  explicit Screen(Session& session);
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // Replaces the contents. Lines beyond the terminal's size are cut.
  void Draw(const std::string& text);

  // Waits for a key. Returns it, 0 after `timeout` or if a signal interrupts the wait, and 'q'
  // after Ctrl-C or if the terminal is gone.
  char WaitForKey(absl::Duration timeout);

 private:
  Session& session_;
  termios saved_ = {};
  int interrupted_ = -1;  // An eventfd; readable after Ctrl-C.
};

}  // namespace genesis::cli
