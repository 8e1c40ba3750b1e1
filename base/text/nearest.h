#pragma once

#include <string>
#include <vector>

namespace genesis {

// The candidate that `name` was most likely meant to be, by edit distance (insert, remove, change,
// swap neighbours; case does not count), or "" when none is near: more than a third of the letters
// would have to change. The first of equals wins.
std::string Nearest(const std::string& name, const std::vector<std::string>& candidates);

}  // namespace genesis
