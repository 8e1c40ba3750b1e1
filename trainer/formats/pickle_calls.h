#pragma once

#include <optional>

#include "trainer/formats/pickle_reader.h"

namespace genesis {

// Returns the storage of a persistent ID ("storage", type, key, device, number of elements);
// nullopt if it is malformed.
std::optional<PickleStorage> BuildPickleStorage(const PickleList& id);

// Returns the result of calling a known global; nullopt if the arguments do not match its rule.
std::optional<PickleValue> CallPickleGlobal(const PickleGlobal& callee,
                                            const PickleList& arguments);

}  // namespace genesis
