#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace genesis {

// Bytes of a zip file with these records.
std::string ZipBytes(const std::map<std::string, std::string>& records, bool deflate = false);

// Bytes of a version 1.0 .npy file whose header holds `descr`, e.g. "<f4", and `shape`, e.g. "(3,
// 2)".
std::string NpyBytes(const std::string& descr, const std::string& shape, const std::string& data,
                     const std::string& fortran_order = "False");

// The bytes of `values`, as they stand in memory.
template <typename T>
std::string RawBytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// A small dataset that can be learnt: `episodes` of `length` transitions, two observation columns
// that turn and shrink, one action column that pushes. Records of an .npz file, to be changed
// before ZipBytes makes a file of them.
std::map<std::string, std::string> SpiralRecords(int episodes = 8, int length = 32);

}  // namespace genesis
