#pragma once

#include <exception>
#include <stdexcept>
#include <string>

namespace genesis {

// An example of the dataset that a user's module or its loss cannot take: which field of which
// example, and what to do. A module that does not fit the job is a std::invalid_argument.
class DataFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Whether host or device had too little memory; also where TorchScript has made other words of it.
bool IsOutOfMemory(const std::exception& error);
// Whether the device failed: nothing can be asked of it any more.
bool IsDeviceFault(const std::exception& error);

// Torch's own words, without the frames of its C++ code.
std::string TorchText(const std::exception& error);

// The words of an exception of TorchScript for its user: what was thrown, on one line, then the
// traceback through the Python that the module was made of, outermost call first. Bounded; the
// outermost and the innermost call are kept.
std::string ModuleWords(const std::exception& error);

}  // namespace genesis
