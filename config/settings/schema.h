#pragma once

#include <string>

namespace genesis {

// Returns the text of docs/genesisd.schema.json: the JSON Schema (2020-12) of the settings file,
// built from the settings table. Editors use it to check and complete the file.
std::string SettingsSchema();

}  // namespace genesis
