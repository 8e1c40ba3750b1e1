#pragma once

#include <string>

namespace genesis {

// Returns the text of docs/genesisd.schema.json: JSON Schema (2020-12) of the settings file, from
// the settings table. Editors check and complete the file with it.
std::string SettingsSchema();

}  // namespace genesis
