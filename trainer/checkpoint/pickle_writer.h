#pragma once

#include <string>
#include <vector>

#include "trainer/checkpoint/value.h"

namespace genesis {

// A pickle and the bytes of its tensors: storage i is the record data/i.
struct PickledTree {
  struct Storage {
    at::Tensor owner;  // Keeps the bytes alive.
    const char* data = nullptr;
    uint64_t size = 0;
  };
  std::string pickle;
  std::vector<Storage> storages;
};

// Returns the pickle that torch.save writes for a tree (protocol 2), with tensors on the CPU, of
// any strides. Tensors that share a storage share it in the file too, cut to the part in use.
// Throws c10::Error for an element type that checkpoints do not support.
PickledTree PickleTree(const Value& root);

}  // namespace genesis
