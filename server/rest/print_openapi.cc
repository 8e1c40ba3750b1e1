// Prints docs/openapi.json.
#include <iostream>

#include "server/rest/openapi.h"

int main() { std::cout << genesis::OpenApiText(); }
