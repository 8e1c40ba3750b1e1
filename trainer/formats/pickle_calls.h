#pragma once

#include <optional>

#include "trainer/formats/pickle_reader.h"

namespace genesis {

// The storage that a persistent id ("storage", type, key, device, number of elements) names;
// nullopt when it is malformed.
std::optional<PickleStorage> BuildPickleStorage(const PickleList& id);

// The result of calling one of the known globals; nullopt when the arguments do not fit.
std::optional<PickleValue> CallPickleGlobal(const PickleGlobal& callee,
                                            const PickleList& arguments);

}  // namespace genesis
