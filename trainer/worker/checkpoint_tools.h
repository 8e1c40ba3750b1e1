#pragma once

#include <string>

namespace genesis {

// `genesis-worker --verify FILE`: reads a checkpoint from end to end. Exit code kOk when it is
// whole and holds weights that can be read without running any code.
int RunVerify(const std::string& path);

// `genesis-worker --export FILE --to FILE.safetensors`: the weights of a checkpoint, or their
// moving average. Exit code kUsage for a file that holds none.
int RunExport(const std::string& from, const std::string& to, bool average);

}  // namespace genesis
