#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace genesis {

// Returns the bytes of a zip file with these records, by name.
std::string ZipBytes(const std::map<std::string, std::string>& records, bool deflate = false);

// Returns a version 1.0 .npy file as bytes. Its header contains `descr`, e.g. "<f4",
// and `shape`, e.g. "(3, 2)".
std::string NpyBytes(const std::string& descr, const std::string& shape, const std::string& data,
                     const std::string& fortran_order = "False");

// Returns the bytes of `values` as they are in memory.
template <typename T>
std::string RawBytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Returns the records of an .npz file, so that tests can change them before ZipBytes. They are a
// small learnable dataset: `episodes` episodes of `length` transitions, with two observation
// columns that rotate and shrink and one action column that pushes.
std::map<std::string, std::string> SpiralRecords(int episodes = 8, int length = 32);

}  // namespace genesis
