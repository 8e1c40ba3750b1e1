#pragma once

namespace genesis {

// What names of files begin with that are being imported; no job or checkpoint can be called so.
inline constexpr char kImportPrefix[] = ".import+";

}  // namespace genesis
