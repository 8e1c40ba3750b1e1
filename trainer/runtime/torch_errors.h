#pragma once

#include <exception>
#include <stdexcept>
#include <string>

namespace genesis {

// An exception for an example of the dataset that a user's module or its loss cannot process; names
// field, example and cure. A module that does not fit the job is a std::invalid_argument.
class DataFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Returns whether host or device ran out of memory, even if torch has changed the exception.
bool IsOutOfMemory(const std::exception& error);
// Returns whether the device failed and is no longer usable.
bool IsDeviceFault(const std::exception& error);

// Returns torch's message without the frames of its C++ code.
std::string TorchText(const std::exception& error);

}  // namespace genesis
