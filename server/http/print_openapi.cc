// Prints docs/openapi.json.
#include <iostream>

#include "server/http/openapi.h"

int main() { std::cout << genesis::OpenApiText(); }
