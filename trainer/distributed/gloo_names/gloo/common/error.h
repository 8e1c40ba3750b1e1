#pragma once

#include "trainer/distributed/gloo_names/names.h"
