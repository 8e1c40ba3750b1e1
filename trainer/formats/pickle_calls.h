#pragma once

#include <optional>

#include "trainer/formats/pickle_reader.h"

namespace genesis {

// Returns the storage of a persistent ID ("storage", type, key, device, number of elements);
// nullopt if it is malformed.
std::optional<PickleStorage> BuildPickleStorage(const PickleList& id);

// Returns the result of calling one of the known globals; nullopt if the arguments do not fit.
std::optional<PickleValue> CallPickleGlobal(const PickleGlobal& callee,
                                            const PickleList& arguments);

}  // namespace genesis
