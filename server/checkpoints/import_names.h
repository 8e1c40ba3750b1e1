#pragma once

namespace genesis {

// The prefix of files that are being imported; no job or checkpoint can have such a name.
inline constexpr char kImportPrefix[] = ".import+";

}  // namespace genesis
