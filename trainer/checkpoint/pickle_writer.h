#pragma once

#include <string>
#include <vector>

#include "trainer/checkpoint/value.h"

namespace genesis {

// A pickle, and the bytes that its tensors are in: storage i is the record data/i.
struct PickledTree {
  struct Storage {
    at::Tensor owner;  // Keeps the bytes alive.
    const char* data = nullptr;
    uint64_t size = 0;
  };
  std::string pickle;
  std::vector<Storage> storages;
};

// The pickle that torch.save writes of a tree (protocol 2): tensors on the CPU, of any strides;
// those that share a storage share it in the file, where only the part that they reach stands.
// Throws c10::Error for a type of element that checkpoints do not have.
PickledTree PickleTree(const Value& root);

}  // namespace genesis
