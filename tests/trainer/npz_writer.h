#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace genesis {

// Returns the bytes of a zip file with these records.
std::string ZipBytes(const std::map<std::string, std::string>& records, bool deflate = false);

// Returns the bytes of a version 1.0 .npy file whose header has `descr`, e.g. "<f4", and `shape`,
// e.g. "(3, 2)".
std::string NpyBytes(const std::string& descr, const std::string& shape, const std::string& data,
                     const std::string& fortran_order = "False");

// Returns the bytes of `values`, as in memory.
template <typename T>
std::string RawBytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Returns a small learnable dataset: `episodes` of `length` transitions, two observation columns
// that rotate and shrink, one action column that pushes. These are the records of an .npz file,
// which a test may change before ZipBytes builds a file from them.
std::map<std::string, std::string> SpiralRecords(int episodes = 8, int length = 32);

}  // namespace genesis
