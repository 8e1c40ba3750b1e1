#pragma once

#include <vector>

#include "base/text/field_error.h"
#include "config/settings/settings.h"

namespace genesis {

// Adds the conflicts between settings that are each valid alone: two servers on one port, TLS with
// only one file, an address open to other hosts without authentication.
void CheckConflicts(const Settings& settings, std::vector<FieldError>& errors);

}  // namespace genesis
