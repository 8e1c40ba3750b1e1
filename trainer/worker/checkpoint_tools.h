#pragma once

#include <string>

namespace genesis {

// `genesis-worker --verify FILE`: reads a whole checkpoint. Exit code kOk if it is intact and holds
// weights that can be read without running code.
int RunVerify(const std::string& path);

// `genesis-worker --export FILE --to FILE.safetensors`: exports the weights of a checkpoint, or
// their moving average. Exit code kUsage if that fails, for instance if the file has none.
int RunExport(const std::string& from, const std::string& to, bool average);

}  // namespace genesis
