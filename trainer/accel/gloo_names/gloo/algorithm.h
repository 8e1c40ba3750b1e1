#pragma once

#include "trainer/accel/gloo_names/names.h"
