#pragma once

#include <string>
#include <vector>

namespace genesis {

// Returns the candidate that `name` was most likely meant to be, or "" if none is near, that is, if
// more than a third of the letters would have to change. Compares by edit distance (insert, remove,
// change, swap neighbours), ignoring case. If several are equally near, returns the first.
std::string Nearest(const std::string& name, const std::vector<std::string>& candidates);

}  // namespace genesis
