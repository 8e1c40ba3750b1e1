#pragma once

namespace genesis {

// Prefix of files that are being imported. No job or checkpoint can have such a name.
inline constexpr char kImportPrefix[] = ".import+";

}  // namespace genesis
